from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from processors.embedders.embedder import Urgency
from processors.embedders.remote.circuit_breaker import CircuitOptions
from processors.embedders.remote.embedder import LiteLLMEmbedder, input_type
from runtime.errors import (
    CircuitOpen,
    ConfigurationError,
    RateLimited,
    Unavailable,
    UnsupportedContent,
)
from tests.support.model_server import (
    DIMENSIONS,
    Fault,
    ModelServer,
    doubled_index,
    filled,
    miscounted,
    not_json,
    ragged,
    reordered,
    running_server,
    sends,
    stall,
    status,
    too_few,
    vector_of,
    wide,
)
from tests.support.waiting import eventually, patience, within

TEXTS = ["one", "two", "three", "four", "five"]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with running_server() as server:
        yield server


def embedder_of(server: ModelServer, **options: Any) -> LiteLLMEmbedder:
    defaults: dict[str, Any] = {"api_key": server.key, "base_url": server.base_url, "retries": 2}
    return LiteLLMEmbedder("openai/test-model", **(defaults | options))


async def started(server: ModelServer, *faults: Fault, **options: Any) -> LiteLLMEmbedder:
    """Embedder that is started, with faults for the requests that follow."""
    embedder = embedder_of(server, **options)
    await embedder.start()
    server.requests.clear()
    server.faults.extend(faults)
    return embedder


def expected(texts: list[str]) -> Any:
    vectors = np.array([vector_of(text) for text in texts])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


async def test_vectors_come_in_the_order_of_the_texts_with_unit_length(server: ModelServer) -> None:
    """Texts are sent in batches, and the vectors are in the order of the texts."""
    embedder = await started(server, batch_texts=2)
    assert embedder.dimensions == DIMENSIONS
    embeddings = await embedder.embed(TEXTS, Urgency.LIVE)
    np.testing.assert_allclose(embeddings.vectors, expected(TEXTS), atol=1e-6)
    assert embeddings.vectors.dtype == np.float32
    assert sorted(map(len, server.requests)) == [1, 2, 2]
    assert embeddings.tokens == 3 * len(TEXTS)
    assert embeddings.cost_usd == 0


async def test_a_known_model_has_a_price(server: ModelServer) -> None:
    """The cost of a model follows LiteLLM's price table."""
    embedder = LiteLLMEmbedder("openai/text-embedding-3-small", server.key, server.base_url)
    await embedder.start()
    embeddings = await embedder.embed(["text"], Urgency.QUERY)
    assert embeddings.cost_usd == pytest.approx(3 * 0.02 / 1e6)
    assert embedder.limit_tokens == 512
    assert embedder.count_tokens(["hello world"]) == [2]


@pytest.mark.parametrize(
    "fault",
    [
        status(500),
        status(503),
        status(429),
        too_few,
        doubled_index,
        ragged,
        filled(float("nan")),
        filled(float("inf")),
        filled(0.0),
        not_json,
        sends({"object": "list"}),
        sends({"data": None}),
        sends({"data": [None] * 5}),
        sends({"data": ["vector"] * 5}),
        sends({"data": {"index": 0}}),
        sends({"data": [{"index": [0], "embedding": [1.0]}] * 5}),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # LiteLLM's own
async def test_a_bad_response_is_asked_for_again(server: ModelServer, fault: Fault) -> None:
    """A faulty response is requested again and does not change the vectors."""
    embedder = await started(server, fault)
    embeddings = await embedder.embed(TEXTS, Urgency.LIVE)
    np.testing.assert_allclose(embeddings.vectors, expected(TEXTS), atol=1e-6)
    assert len(server.requests) == 2


async def test_a_reordered_response_is_put_in_order(server: ModelServer) -> None:
    """Vectors are ordered by the index in the response."""
    embedder = await started(server, reordered)
    embeddings = await embedder.embed(TEXTS, Urgency.LIVE)
    np.testing.assert_allclose(embeddings.vectors, expected(TEXTS), atol=1e-6)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (status(500), Unavailable),
        (too_few, Unavailable),
        (filled(float("nan")), Unavailable),
        (status(429, Retry_After="0"), RateLimited),
    ],
)
async def test_the_retry_budget_is_ours(
    server: ModelServer, fault: Fault, error: type[Exception]
) -> None:
    """Two retries make three requests, then a typed error."""
    embedder = await started(server, fault, fault, fault, fault)
    with pytest.raises(error):
        await embedder.embed(TEXTS, Urgency.LIVE)
    assert len(server.requests) == 3


async def test_without_retries_there_is_one_request(server: ModelServer) -> None:
    """LiteLLM adds no requests of its own."""
    embedder = await started(server, status(500), retries=0)
    with pytest.raises(Unavailable):
        await embedder.embed(TEXTS, Urgency.LIVE)
    assert len(server.requests) == 1


async def test_retry_after_is_waited_for(server: ModelServer) -> None:
    """A retry waits for the provider's Retry-After."""
    embedder = await started(server, status(429, Retry_After="1"))
    begun = time.monotonic()
    await embedder.embed(TEXTS, Urgency.LIVE)
    assert time.monotonic() - begun >= 1


async def test_a_long_retry_after_is_handed_on(server: ModelServer) -> None:
    """A Retry-After of over a minute raises RateLimited instead of waiting."""
    embedder = await started(server, status(429, Retry_After="3600"))
    with pytest.raises(RateLimited) as caught:
        await embedder.embed(TEXTS, Urgency.LIVE)
    assert caught.value.retry_after == timedelta(hours=1)
    assert len(server.requests) == 1


async def test_a_stall_ends_at_the_timeout(server: ModelServer) -> None:
    """A request without a response ends at the timeout and is retried."""
    await started(server)  # the first request of a process loads a large library
    seconds = round(patience(0.3), 1)
    timeout = timedelta(seconds=seconds)
    embedder = await started(server, stall, stall, stall, timeout=timeout, retries=1)
    with pytest.raises(Unavailable, match=f"didn't answer within {seconds:g} s"):
        await embedder.embed(TEXTS, Urgency.LIVE)
    assert len(server.requests) == 2


@pytest.mark.parametrize("tokens", ["many", -5, None])
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # LiteLLM's own
async def test_a_count_that_is_none_is_not_believed(server: ModelServer, tokens: object) -> None:
    """An invalid token count of the server is replaced by the embedder's count."""
    embedder = await started(server, miscounted(tokens))
    embeddings = await embedder.embed(TEXTS, Urgency.LIVE)
    assert embeddings.tokens == sum(embedder.count_tokens(TEXTS)) > 0


@pytest.mark.parametrize(
    ("code", "error"),
    [(403, ConfigurationError), (413, UnsupportedContent), (422, UnsupportedContent)],
)
async def test_a_refusal_is_no_outage(
    server: ModelServer, code: int, error: type[Exception]
) -> None:
    """A refusal of texts or of the key raises an error and is not an outage.

    A test request decides whether the texts are the cause; a refused key needs none.
    """
    embedder = await started(server, status(code))
    with pytest.raises(error):
        await embedder.embed(TEXTS, Urgency.LIVE)
    others = [["width"]] if error is UnsupportedContent else []
    assert server.requests == [TEXTS, *others]
    assert not embedder.circuit.is_open


@pytest.mark.parametrize("code", [400, 404])
async def test_a_server_that_refuses_everything_blames_no_text(
    server: ModelServer, code: int
) -> None:
    """A server that refuses every request opens the circuit and causes no dead letter."""
    embedder = await started(server, status(code), status(code))
    with pytest.raises(ConfigurationError, match="refused the request"):
        await embedder.embed(TEXTS, Urgency.LIVE)
    with pytest.raises(CircuitOpen):
        await embedder.embed(TEXTS, Urgency.LIVE)
    assert server.requests == [TEXTS, ["width"]]
    async with within(10):
        await embedder.circuit.wait_until_closed()
    assert len((await embedder.embed(TEXTS, Urgency.LIVE)).vectors) == len(TEXTS)
    await embedder.close()


async def test_an_error_never_contains_a_key(server: ModelServer) -> None:
    """An error contains no key, neither the embedder's nor one in a URL."""
    reason = f"no {server.key} for https://host/v1?alt=x&key=other-secret"
    refusal = web.json_response({"error": {"message": reason}}, status=400)
    embedder = await started(server, lambda _, __: refusal)
    with pytest.raises(UnsupportedContent) as caught:
        await embedder.embed(TEXTS, Urgency.LIVE)
    assert "alt=x" in str(caught.value)
    assert server.key not in str(caught.value)
    assert "other-secret" not in str(caught.value)


async def test_another_width_is_a_matter_of_configuration(server: ModelServer) -> None:
    """Vectors of another width raise ConfigurationError."""
    embedder = await started(server, wide(DIMENSIONS + 1))
    with pytest.raises(ConfigurationError, match="9 wide where 8"):
        await embedder.embed(TEXTS, Urgency.LIVE)


async def test_the_width_asked_for_is_the_width_demanded(server: ModelServer) -> None:
    """A server that ignores ``dimensions`` is refused at the start."""
    embedder = LiteLLMEmbedder(
        "openai/text-embedding-3-small", server.key, server.base_url, dimensions=4
    )
    with pytest.raises(ConfigurationError, match="HEADRACE_MODEL_DIMENSIONS"):
        await embedder.start()


async def test_a_refused_key_names_the_setting(server: ModelServer) -> None:
    """A refused key raises ConfigurationError with the setting's name."""
    embedder = embedder_of(server, api_key="wrong-key")
    with pytest.raises(ConfigurationError, match="HEADRACE_MODEL_API_KEY"):
        await embedder.start()


async def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key raises ConfigurationError with the variable's name."""
    monkeypatch.delenv("VOYAGE_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="VOYAGE_API_KEY"):
        await LiteLLMEmbedder("voyage/voyage-code-3").start()


@pytest.mark.parametrize("empty", ["", " "])
async def test_an_empty_key_is_a_missing_one(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    """An empty key raises the same error as a missing one."""
    monkeypatch.setenv("OPENAI_API_KEY", empty)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        await LiteLLMEmbedder("openai/text-embedding-3-small").start()


async def test_an_unknown_provider_is_named() -> None:
    """A model name without a provider raises ConfigurationError."""
    with pytest.raises(ConfigurationError, match="no provider"):
        await LiteLLMEmbedder("nonsense-model").start()


async def test_an_unreachable_server_is_unavailable() -> None:
    """An unreachable server raises Unavailable, so that the request can be repeated."""
    embedder = LiteLLMEmbedder("openai/test", "key", "http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(Unavailable, match="can't be reached"):
        await embedder.start()


async def test_documents_are_bounded_and_queries_pass_them(server: ModelServer) -> None:
    """At most ``concurrency`` document requests are in flight; a query does not wait for them."""
    embedder = await started(server, stall, stall, concurrency=2, batch_texts=1)
    server.most_in_flight = 0
    documents = asyncio.create_task(embedder.embed(TEXTS, Urgency.BULK))
    async with within(10):
        await eventually(lambda: server.in_flight == 2, "two requests in flight")
        await embedder.embed(["question"], Urgency.QUERY)
        assert server.in_flight == 2
        server.gate.set()
        await documents
    assert server.most_in_flight == 3


async def test_a_cancelled_call_leaves_nothing_running(server: ModelServer) -> None:
    """Cancellation ends the requests in flight and sends no others."""
    embedder = await started(server, stall, batch_texts=1, concurrency=1)
    task = asyncio.create_task(embedder.embed(TEXTS, Urgency.BULK))
    async with within(10):
        await eventually(lambda: server.requests, "the first request")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.gate.set()
        await embedder.embed(["question"], Urgency.BULK)
    assert len(server.requests) == 2


async def test_one_failed_request_stops_the_others_of_its_call(server: ModelServer) -> None:
    """After a refused text the other requests of its call are not sent."""
    embedder = await started(server, status(400), batch_texts=1, concurrency=1)
    with pytest.raises(UnsupportedContent, match="refused the request"):
        await embedder.embed(TEXTS, Urgency.BULK)
    await embedder.embed(["next"], Urgency.BULK)
    assert server.requests == [[TEXTS[0]], ["width"], ["next"]]


async def test_a_refused_text_is_no_fault_of_the_requests_beside_it(
    server: ModelServer,
) -> None:
    """Requests that are cancelled because of a refused text do not open the circuit."""

    async def refuse_in_a_crowd(server: ModelServer, texts: list[str]) -> Any:
        await eventually(lambda: server.in_flight == len(TEXTS), "all are in flight")
        return status(400)(server, texts)

    embedder = await started(
        server,
        *[refuse_in_a_crowd, stall, stall, stall, stall],
        batch_texts=1,
        concurrency=len(TEXTS),
        circuit=CircuitOptions(failures=1, cancelled_after=timedelta(0)),
    )
    with pytest.raises(UnsupportedContent):
        await embedder.embed(TEXTS, Urgency.BULK)
    await embedder.embed(["next"], Urgency.BULK)


class Gate:
    """Rate limiter that blocks requests until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = 0

    def tokens_per_minute(self, _: str) -> int:
        return 0

    async def acquire(self, _: str, __: int, *, urgent: bool) -> timedelta:
        del urgent
        self.waiting += 1
        await self.opened.wait()
        return timedelta()

    async def block_requests(self, _: str, __: timedelta) -> None:
        raise AssertionError("nobody is held back")


async def test_who_waited_for_a_turn_does_not_ask_a_model_that_went_down_meanwhile(
    server: ModelServer,
) -> None:
    """A request that waited for the rate limiter is not sent if the circuit has opened."""
    gate = Gate()
    gate.opened.set()
    calm = CircuitOptions(first_pause=timedelta(minutes=1))
    embedder = await started(server, rate_limiter=gate, circuit=calm)
    gate.opened.clear()
    waits = asyncio.create_task(embedder.embed(TEXTS, Urgency.LIVE))
    await eventually(lambda: gate.waiting == 2, "it waits for its turn")
    embedder.circuit.open("status 500")
    gate.opened.set()
    with pytest.raises(CircuitOpen):
        await waits
    await embedder.close()
    assert not server.requests


@pytest.mark.parametrize(
    ("provider", "model", "document", "question"),
    [
        ("cohere", "cohere/embed-v4.0", "search_document", "search_query"),
        ("bedrock", "bedrock/cohere.embed-english-v3", "search_document", "search_query"),
        ("voyage", "voyage/voyage-code-3", "document", "query"),
        ("nvidia_nim", "nvidia_nim/nvidia/nv-embedqa-e5-v5", "passage", "query"),
        ("jina_ai", "jina_ai/jina-embeddings-v3", "retrieval.passage", "retrieval.query"),
        ("gemini", "gemini/gemini-embedding-001", "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"),
        ("openai", "openai/text-embedding-3-small", None, None),
        ("jina_ai", "jina_ai/jina-embeddings-v2-base-en", None, None),
        ("bedrock", "bedrock/amazon.titan-embed-text-v2:0", None, None),
    ],
)
def test_providers_name_questions_and_documents(
    provider: str, model: str, document: str | None, question: str | None
) -> None:
    """Each provider gets its own words, and one that has none gets nothing."""
    options = [input_type(provider, model, is_question=it) for it in (False, True)]
    assert [next(iter(option.values()), None) for option in options] == [document, question]


async def test_questions_and_documents_are_sent_as_such(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider is sent whether a text is a question; the probe of a start is a document."""
    monkeypatch.setenv("VOYAGE_API_KEY", server.key)
    embedder = LiteLLMEmbedder("voyage/voyage-code-3", base_url=server.base_url, retries=0)
    await embedder.embed(["a document"], Urgency.BULK)
    await embedder.embed(["a question"], Urgency.QUERY)
    assert server.input_types == ["document", "document", "query"]

from __future__ import annotations

import asyncio
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from processors.embedders.embedder import Urgency
from processors.embedders.hash_embedder import HashingEmbedder
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.weights import OFFICIAL_NAME, locate, model_name, read_shape
from processors.embedders.registry import Embedders, create_embedder, full_name
from processors.embedders.registry import ModelOptions as Options
from processors.embedders.remote.embedder import LiteLLMEmbedder, request_batches
from processors.embedders.remote.provider import BACKOFF, retry_after
from processors.recipes import recipe_of
from runtime.errors import ConfigurationError, Unavailable
from runtime.settings import Settings
from store.generations.catalog import Recipe
from tests.support.waiting import eventually

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Slow(HashingEmbedder):
    """Model that starts when allowed, and fails a given number of times."""

    def __init__(self) -> None:
        self.allowed = asyncio.Event()
        self.failures = 0
        self.started = self.closed = 0

    async def start(self) -> None:
        self.started += 1
        await self.allowed.wait()
        if self.failures:
            self.failures -= 1
            raise Unavailable("the model is down")

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Model that every name creates."""
    model = Slow()
    monkeypatch.setattr("processors.embedders.registry.create_embedder", lambda *_: model)
    return model


async def test_each_kind_has_its_model_and_each_model_one_embedder() -> None:
    """Kinds that name the same model share its embedder; others use the recipe's default."""
    recipe = Recipe("local/hash-384", {"code": OFFICIAL_NAME, "pdf": "local/hash-384"})
    embedders = Embedders(recipe=recipe)
    assert isinstance(await embedders.for_kind(recipe, "code"), LocalEmbedder)
    assert isinstance(await embedders.for_kind(recipe, "markdown"), HashingEmbedder)
    pdf = await embedders.for_kind(recipe, "pdf")
    assert pdf is await embedders.for_kind(recipe, "markdown")
    await embedders.close()


async def test_only_the_models_of_the_recipe_are_started_at_the_start(slow: Slow) -> None:
    """Only the recipe's models are started at first; others start on first use."""
    slow.allowed.set()
    embedders = Embedders(recipe=Recipe("a", {"code": "b"}))
    await embedders.start()
    assert slow.started == 2
    await embedders.embedder("c")
    await embedders.embedder("c")
    assert slow.started == 3
    await embedders.close()
    assert slow.closed == 3


async def test_first_uses_at_once_share_one_start(slow: Slow) -> None:
    """Concurrent first uses share one start, which a cancelled one does not stop."""
    embedders = Embedders()
    hasty, patient = (asyncio.create_task(embedders.embedder("a")) for _ in range(2))
    await eventually(lambda: slow.started, "the start")
    hasty.cancel()
    slow.allowed.set()
    assert await patient is slow
    assert slow.started == 1
    await embedders.close()


async def test_a_failed_start_is_not_remembered(slow: Slow) -> None:
    """A failed start is retried at the next use."""
    slow.allowed.set()
    slow.failures = 1
    embedders = Embedders()
    with pytest.raises(Unavailable):
        await embedders.embedder("a")
    assert await embedders.embedder("a") is slow
    await embedders.close()
    assert (slow.started, slow.closed) == (2, 1)


async def test_a_loaded_model_is_not_started(slow: Slow) -> None:
    """Loading a model does not start it; a later use starts the same one."""
    embedders = Embedders()
    assert await embedders.loaded("a") is slow
    assert slow.started == 0
    slow.allowed.set()
    assert await embedders.embedder("a") is slow
    await embedders.close()
    assert (slow.started, slow.closed) == (1, 1)


async def test_closing_ends_a_start_too(slow: Slow) -> None:
    """Closing does not wait for a model that starts slowly."""
    embedders = Embedders()
    waiting = asyncio.create_task(embedders.embedder("a"))
    await eventually(lambda: slow.started, "the start")
    await embedders.close()
    assert slow.closed == 1
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize(
    ("model", "requested", "name"),
    [
        ("openai/a", None, "openai/a"),
        ("openai/a", 256, "openai/a@256"),
        ("openai/a@512", 256, "openai/a@512"),
        ("vertex_ai/gecko@003", None, "vertex_ai/gecko@003"),
        ("vertex_ai/gecko@003", 256, "vertex_ai/gecko@003@256"),
        (OFFICIAL_NAME, 256, OFFICIAL_NAME),
    ],
)
def test_a_width_that_is_asked_for_is_part_of_the_name(
    model: str, requested: int | None, name: str
) -> None:
    """A requested width is part of the name, so that vectors of two widths differ in name."""
    assert full_name(model, Options(dimensions=requested)) == name
    assert create_embedder(name, Options()).model == name


@pytest.mark.parametrize(
    ("model", "stored", "width"),
    [("a", 256, 256), ("a", 1536, None), ("a", None, None), ("a@512", None, 512)],
)
async def test_a_setting_changes_no_width_of_what_is_stored(
    monkeypatch: pytest.MonkeyPatch, model: str, stored: int | None, width: int | None
) -> None:
    """A name without a width keeps the width of its stored vectors."""

    async def stored_width(_: str) -> int | None:
        return stored

    loaded: list[LiteLLMEmbedder] = []

    async def load(self: LiteLLMEmbedder) -> None:
        loaded.append(self)

    monkeypatch.setattr(LiteLLMEmbedder, "load", load)
    embedders = Embedders(Options(dimensions=256), stored_width=stored_width)
    assert (await embedders.loaded(model)).model == model
    assert [one._endpoint.dimensions for one in loaded] == [width]
    await embedders.close()


def test_the_default_is_the_built_in_model() -> None:
    """The default model is the packaged one."""
    embedder = create_embedder(recipe_of(Settings()).model, Options())
    assert isinstance(embedder, LocalEmbedder)
    assert embedder.model == "local/all-MiniLM-L6-v2"
    assert (embedder.dimensions, embedder.limit_tokens) == (384, 254)


def test_an_unknown_local_model_is_refused_with_the_known_ones() -> None:
    """The error lists the local models."""
    with pytest.raises(ConfigurationError, match=r"local/all-MiniLM-L6-v2, local/hash-384"):
        create_embedder("local/other", Options())


async def test_hashed_vectors_are_equal_for_equal_texts_only() -> None:
    """Hashed vectors have unit length, and are equal for equal texts only."""
    embedder = HashingEmbedder()
    first, again, other = (await embedder.embed(["a b", "a b", "c"], Urgency.BULK)).vectors
    assert np.array_equal(first, again)
    assert abs(float(first @ other)) < 0.3
    assert float(first @ first) == pytest.approx(1, abs=1e-5)


@pytest.fixture
def model_copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(locate(None), tmp_path / "model"))


def edit_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_directory_of_ones_own_is_accepted(model_copy: Path) -> None:
    """A copy of the official release has its name; other weights get their own name."""
    assert LocalEmbedder(model_copy).model == "local/all-MiniLM-L6-v2"
    with (model_copy / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    name = model_name(model_copy)
    assert name.startswith("local/model-")
    options = Options(model_copy)
    assert full_name(OFFICIAL_NAME, options) == name == create_embedder(name, options).model
    assert create_embedder(OFFICIAL_NAME, options).model == OFFICIAL_NAME
    with pytest.raises(ConfigurationError, match="HEADRACE_MODEL_DIRECTORY"):
        create_embedder(name, Options())


def test_tampered_packaged_weights_are_refused(
    model_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed packaged tokenizer is refused."""
    monkeypatch.setattr(
        "processors.embedders.local.weights._packaged_directory", lambda: model_copy
    )
    locate(None)
    with (model_copy / "tokenizer.json").open("ab") as file:
        file.write(b"\n")
    with pytest.raises(ConfigurationError, match="not the official"):
        locate(None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "distilbert"}, "model_type of bert"),
        ({"hidden_act": "relu"}, "GELU"),
        ({"position_embedding_type": "relative_key"}, "positions"),
        ({"num_attention_heads": 7}, "heads"),
    ],
)
def test_a_model_that_is_not_bert_is_refused(
    model_copy: Path, changes: dict[str, object], message: str
) -> None:
    """The error names the fault."""
    edit_config(model_copy, **changes)
    with pytest.raises(ConfigurationError, match=message):
        read_shape(model_copy)


async def test_weights_that_do_not_fit_their_config_are_refused(model_copy: Path) -> None:
    """Weights that do not match the config are refused at the start."""
    edit_config(model_copy, num_hidden_layers=7)
    embedder = LocalEmbedder(model_copy)
    with pytest.raises(ConfigurationError, match="do not match"):
        await embedder.start()
    await embedder.close()


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    """The error names the missing file."""
    with pytest.raises(ConfigurationError, match=r"no model.safetensors"):
        locate(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", timedelta(seconds=7)),
        ("0.5", timedelta(seconds=0.5)),
        ("Fri, 02 Jan 2026 03:04:15 GMT", timedelta(seconds=10)),
        ("Fri, 02 Jan 2026 03:04:00 GMT", timedelta(0)),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(value: str, expected: timedelta | None) -> None:
    """Both forms of RFC 9110 are read; anything else counts as absent."""
    assert retry_after({"retry-after": value}, NOW) == expected


def test_backoff_grows_and_is_bounded() -> None:
    """Later retries wait longer, up to 20 s."""
    assert BACKOFF.delay(0) <= timedelta(seconds=0.25) < BACKOFF.delay(3) <= timedelta(seconds=2)
    assert BACKOFF.delay(1000) <= timedelta(seconds=20)


def test_requests_hold_neither_too_many_texts_nor_too_many_tokens() -> None:
    """Batches keep the order, and a text over the token limit gets its own."""
    assert list(request_batches([1, 1, 1, 50, 9, 2], 2, 10)) == [[0, 1], [2], [3], [4], [5]]

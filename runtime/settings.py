"""All settings, read from ``HEADRACE_*`` by composition roots only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    PositiveInt,
    SecretStr,
    SerializationInfo,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from runtime import protocol_limits
from runtime.secrets import masked

__all__ = [
    "LOCAL_MODEL",
    "MODEL_SETTINGS",
    "BridgeSettings",
    "ChunkingLimits",
    "ContextSettings",
    "EventLimits",
    "GatewaySettings",
    "HookSettings",
    "ModelRateLimits",
    "ModelRequests",
    "RerankSettings",
    "RetentionSettings",
    "Settings",
    "VectorSearch",
]

LOCAL_MODEL = "local/all-MiniLM-L6-v2"
MODEL_SETTINGS = frozenset({"model", "models", "model_dimensions", "model_directory"})
"""Names of the settings that choose the models of new projects."""

_HOME = Path("~/.headrace")


def _seconds(value: object) -> object:
    """Accept ``6`` for six seconds in the environment, besides ISO 8601's ``PT6S``."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _home(value: object) -> object:
    """Treat an empty text as unset, as of a shell variable; otherwise it would be ``.``."""
    return value or _HOME


def _text_of_secret(secret: SecretStr, info: SerializationInfo) -> str:
    return secret.get_secret_value() if info.context == _REVEALED else str(secret)


_REVEALED = "revealed"
"""Context of serialization for another process of the same user."""

Secret = Annotated[SecretStr, PlainSerializer(_text_of_secret, when_used="json")]


def _for_every_provider(value: object) -> object:
    """Turn a number into one limit that applies to each provider."""
    return {"": value} if isinstance(value, int) else value


Rates = Annotated[dict[str, PositiveInt], BeforeValidator(_for_every_provider)]
Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0))]


def _at_most(most: Any, *, least: int | None = 1) -> Any:
    """Field whose default is its upper limit."""
    return Field(default=most, ge=least, le=most)


class _Mapping(BaseModel):
    """Setting with several values, written as a JSON object. A missing key has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EventLimits(_Mapping):
    """Upper limits of an event's sizes. The default is the protocol's limit.

    ``metadata_bytes`` measures the metadata as JSON in UTF-8.
    """

    event_bytes: int = _at_most(protocol_limits.EVENT_BYTES)
    uri_bytes: int = _at_most(protocol_limits.URI_BYTES)
    title_characters: int = _at_most(protocol_limits.TITLE_CHARACTERS)
    collections: int = _at_most(protocol_limits.COLLECTIONS)
    metadata_entries: int = _at_most(protocol_limits.METADATA_ENTRIES)
    metadata_bytes: int = _at_most(protocol_limits.METADATA_BYTES, least=2)
    query_characters: int = _at_most(protocol_limits.QUERY_CHARACTERS)
    query_deadline: Duration = _at_most(protocol_limits.QUERY_DEADLINE, least=None)
    results: int = _at_most(protocol_limits.RESULTS, least=protocol_limits.USUAL_RESULTS)
    context_tokens: int = _at_most(protocol_limits.CONTEXT_TOKENS, least=32)


class ChunkingLimits(_Mapping):
    """Limits of cutting one document: time, address space in bytes, and number of chunks.

    ``extraction_timeout`` replaces ``timeout`` for a document that is not text.
    """

    timeout: Duration = timedelta(seconds=5)
    extraction_timeout: Duration = timedelta(seconds=30)
    memory_bytes: PositiveInt = 2 * 2**30
    chunks: PositiveInt = 20_000


class ModelRequests(_Mapping):
    """Limits of requests to models: time of one, retries, and failures in a row."""

    timeout: Duration = timedelta(seconds=30)
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    failures: PositiveInt = 5


class ModelRateLimits(_Mapping):
    """Rate limits by provider; the empty name stands for every provider without its own."""

    requests_per_minute: Rates = {}
    tokens_per_minute: Rates = {}


class ContextSettings(_Mapping):
    """Contexts of chunks, which a language model writes.

    ``model`` is a LiteLLM name; empty: none. ``base_url`` is the address of an OpenAI-compatible
    server. ``budget_usd_per_day`` limits the cost of all projects together on one day (UTC).
    ``window_tokens`` is the most text of one request.
    """

    model: str = ""
    base_url: str = ""
    budget_usd_per_day: NonNegativeFloat | None = None
    window_tokens: PositiveInt = 12_000


class RerankSettings(_Mapping):
    """Reranking of the best candidates of a question.

    ``model`` is a LiteLLM name, or the directory of a cross-encoder that runs here; empty: off.
    ``base_url`` is the address of the provider's API. ``candidates`` is the number of chunks to
    compare with the question; by default 50, and 20 for a cross-encoder that runs here.
    """

    model: str = ""
    base_url: str = ""
    candidates: Annotated[int, Field(ge=2, le=protocol_limits.RESULTS)] | None = None
    timeout: Duration = timedelta(seconds=1)


class VectorSearch(_Mapping):
    """Parameters of the vector retriever.

    Projects with up to ``exact_chunks`` chunks are searched without HNSW. ``ef_search`` is the
    breadth of an HNSW search (pgvector's ``hnsw.ef_search``). ``build_memory_bytes`` is the most
    memory that Postgres may use to build an index, and ``build_processes`` the number of parallel
    workers that help to build a large one.
    """

    exact_chunks: PositiveInt = 10_000
    ef_search: Annotated[int, Field(ge=10, le=1000)] = 100
    build_memory_bytes: Annotated[int, Field(ge=2**26, le=2**40)] = 2**30
    build_processes: Annotated[int, Field(ge=0, le=64)] = 0


class BridgeSettings(_Mapping):
    """Kafka as seen by ``headrace worker --only bridge``.

    ``brokers`` are addresses to begin with, each as ``host:port``. ``prefix`` precedes the names of
    the topics and of the consumer group; by default it is the stream prefix and a dot.
    ``outcomes`` is the topic (behind the prefix) that outcomes are sent to; empty: none. With
    ``tls``, certificates are checked against those of the system. ``user`` and ``password`` are for
    SASL.
    """

    brokers: tuple[Annotated[str, Field(pattern=r"^[\w.\[\]:-]+:[0-9]{1,5}$")], ...] = ()
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] | None = None
    outcomes: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}$")] = ""
    tls: bool = False
    user: str = ""
    password: Secret = SecretStr("")
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"


Lifetime = Annotated[
    timedelta, BeforeValidator(_seconds), Field(ge=timedelta(days=1), le=timedelta(days=36_500))
]


class RetentionSettings(_Mapping):
    """Times after which rows leave Postgres, each at least a day; null: never.

    ``generations``: since another generation replaced a former one. ``ledger``: since a change was
    applied or superseded. ``tombstones``: since the change that deleted the document. ``vectors``:
    since a cached vector was first found without a chunk. The archive is compacted once in
    ``compaction_interval``.
    """

    generations: Lifetime | None = timedelta(days=30)
    ledger: Lifetime | None = timedelta(days=90)
    tombstones: Lifetime | None = timedelta(days=90)
    vectors: Lifetime | None = timedelta(days=90)
    compaction_interval: Duration = timedelta(days=1)


class HookSettings(_Mapping):
    """Repository of a webhook: its host knows ``secret``, and it is fetched from ``repository``."""

    secret: Annotated[Secret, Field(min_length=16)]
    repository: Annotated[str, Field(pattern=r"^[^-\s]\S*$")]
    project: str = "default"
    collections: tuple[str, ...] = ()
    prefix: str | None = None


class GatewaySettings(_Mapping):
    """Settings of ``headrace serve``.

    ``hosts`` are names, beside those of loopback, by which clients reach the gateway. ``origins``
    are those of pages that may call it. ``questions`` and ``questions_per_key`` limit the questions
    in flight, ``streams`` the open event streams. ``files`` is the directory that routes may read
    documents from; without it they read none. ``hooks`` are webhooks by name.
    """

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    questions: Annotated[int, Field(ge=1, le=512)] = 512
    questions_per_key: Annotated[int, Field(ge=1, le=512)] = 32
    streams: PositiveInt = 64
    files: str = ""
    hooks: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")], HookSettings] = {}


class Settings(BaseSettings):
    """Settings of one process.

    If ``redis_url`` or ``database_url`` is empty, the servers of a running ``headrace up`` under
    ``home`` are used, or embedded ones are started.
    """

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", extra="forbid", frozen=True)

    home: Annotated[Path, BeforeValidator(_home)] = Field(
        default=_HOME,
        description="Directory of the embedded servers and of the state of `up`.",
    )
    redis_url: str = Field(
        default="",
        description="Redis, e.g. redis://host:6379/0, or a cluster, redis+cluster://host,host.",
    )
    bridge: BridgeSettings = Field(
        default=BridgeSettings(),
        description="Kafka as a way in, for `worker --only bridge`: its brokers, the prefix of its "
        "topics, the topic for outcomes, TLS and SASL (docs/how-to/kafka.md).",
        examples=['{"brokers": ["kafka-1:9092", "kafka-2:9092"], "outcomes": "document.outcome"}'],
    )
    database_url: str = Field(
        default="", description="Postgres URL of the workers (a role that can't bypass RLS)."
    )
    read_database_url: str = Field(
        default="",
        description="URL of a streaming replica of Postgres, for all workers: answerers search "
        "there, and indexers record the watermark that it has reached. Empty: no replica.",
    )
    owner_database_url: str = Field(
        default="",
        description="Postgres URL of the owner of the tables: "
        "for `migrate`, and to build indexes without stopping writers.",
    )
    worker_role: str = Field(
        default="headrace_worker", description="Postgres role that workers and questions run as."
    )
    stream_prefix: Annotated[str, Field(pattern=r"^[\w.:-]+$")] = Field(
        default="headrace", description="Prefix of every Redis key."
    )
    partitions: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description="Stream keys per topic of a new deployment; more than one for a Redis Cluster.",
    )

    signing_key: Secret = Field(
        default=SecretStr(""),
        description="Key that signs changes when they are published: `<id>:<secret>`, "
        "as `headrace keys add` prints it.",
    )

    log_format: Literal["console", "json"] = Field(default="console", description="Log rendering.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="Least severe level that is logged."
    )

    model: str = Field(
        default=LOCAL_MODEL,
        description="Embedding model of new projects, for kinds without their own model: "
        "a LiteLLM name, or local/…. Commands beside a running `up` use its models, unless their "
        "own environment names any.",
    )
    models: dict[str, str] = Field(
        default_factory=dict,
        description="Embedding model of new projects by kind of content, "
        'e.g. {"code": "voyage/voyage-code-3"}.',
        examples=['{"code": "voyage/voyage-code-3"}'],
    )
    model_directory: Path | None = Field(
        default=None,
        description="Directory of a sentence-transformers model to use as the local model, of "
        "BERT's or RoBERTa's form.",
    )
    model_threads: PositiveInt | Literal["auto"] = Field(
        default="auto",
        description="Threads on which the local model embeds documents; auto: one for each core "
        "that the process may use, at most 8, divided by the workers of `up`.",
    )
    model_precision: Literal["auto", "int8-static", "int8", "bf16", "f32"] = Field(
        default="auto",
        description="Precision of the local model; auto: bf16 if it is "
        "faster on this processor, else the fastest one in a measurement at startup.",
    )
    model_dimensions: int | None = Field(
        default=None, description="Width to request from models that can shorten their vectors."
    )
    model_base_url: str = Field(default="", description="Base URL of an OpenAI-compatible server.")
    model_api_key: Secret = Field(
        default=SecretStr(""),
        description="API key for LiteLLM; empty: the provider's own variable.",
    )
    model_requests: ModelRequests = Field(
        default=ModelRequests(),
        description="Requests to a model: time limit of one (`timeout`), retries before the model "
        "counts as unavailable (`retries`), and consecutive failures after which it counts as down "
        "and gets only probes (`failures`).",
        examples=['{"timeout": 60, "retries": 2}'],
    )
    model_rate_limits: ModelRateLimits = Field(
        default=ModelRateLimits(),
        description="Requests and tokens that all workers together send to a provider per minute: "
        "a number for each provider, or by name; empty: no limit.",
        examples=['{"requests_per_minute": 300, "tokens_per_minute": {"voyage": 1000000}}'],
    )
    context: ContextSettings = Field(
        default=ContextSettings(),
        description="Contexts: a language model writes a sentence about each chunk, which is "
        "embedded and searched with it. `model` is that of new projects, a LiteLLM name whose key "
        "is in the provider's own variable; empty: none. `budget_usd_per_day` limits the cost of "
        "all projects.",
        examples=['{"model": "openai/gpt-4o-mini", "budget_usd_per_day": 2}'],
    )

    rerank: RerankSettings = Field(
        default=RerankSettings(),
        description="Reranking: a model compares the best candidates of a question with it. "
        "`model` is a LiteLLM name whose key is in the provider's own variable, or the path of a "
        "directory with a BERT cross-encoder; empty: off. `timeout` limits it, and so does half of "
        "the time left of a question.",
        examples=['{"model": "cohere/rerank-v3.5", "candidates": 30}'],
    )

    concurrency: PositiveInt = Field(default=2, description="Batches processed at once, per lane.")
    query_concurrency: PositiveInt = Field(default=16, description="Queries processed at once.")
    batch_documents: PositiveInt = Field(default=64, description="Documents per indexing batch.")
    lease: Duration = Field(
        default=timedelta(seconds=6),
        description="A pending entry is taken over after its worker was silent for this long.",
    )
    max_deliveries: PositiveInt = Field(
        default=5, description="Deliveries of an event before it is dead-lettered."
    )
    retry_delay: Duration = Field(
        default=timedelta(seconds=1), description="Delay before a failed event is retried."
    )
    shutdown_timeout: Duration = Field(
        default=timedelta(seconds=20), description="Longest wait for in-flight work at shutdown."
    )
    statement_timeout: Duration = Field(
        default=timedelta(seconds=15),
        description="Longest duration of one statement of a worker in Postgres.",
    )
    chunking_processes: PositiveInt | Literal["auto"] = Field(
        default="auto",
        description="Parser processes per worker; auto: one for each core, divided by the workers "
        "of `up`.",
    )
    chunking_limits: ChunkingLimits = Field(
        default=ChunkingLimits(),
        description="Limits of cutting one document into chunks; a document over one is refused. "
        "`memory_bytes` is the address space of a parser process.",
        examples=['{"timeout": 10, "chunks": 50000}'],
    )
    max_document_bytes: PositiveInt = Field(
        default=2 * 2**20,
        description="Larger texts are skipped by sources and refused by workers.",
    )
    max_binary_bytes: PositiveInt = Field(
        default=32 * 2**20,
        description="The same for documents that are not text, such as PDF files.",
    )
    inline_content_bytes: PositiveInt = Field(
        default=256 * 2**10, description="Larger content is sent by reference, not in the event."
    )
    limits: EventLimits = Field(
        default=EventLimits(),
        description="Upper limits of an event's sizes, each at most the protocol's own. Keep "
        "`event_bytes` above `HEADRACE_INLINE_CONTENT_BYTES`.",
        examples=['{"uri_bytes": 512, "results": 50}'],
    )

    archive_url: str = Field(
        default="",
        description="Location of the archive of all changes: a directory, or any URL that fsspec "
        "supports; empty: `archive` under `home`.",
    )
    stream_retention: Duration = Field(
        default=timedelta(days=1),
        description="Time that changes stay in Redis after they are indexed and archived.",
    )
    archive_retention: Duration = Field(
        default=timedelta(days=30),
        description="Time that every change stays archived; later only each document's last one.",
    )
    retention: RetentionSettings = Field(
        default=RetentionSettings(),
        description="Times after which rows leave Postgres, each at least a day; null: never. "
        "`generations`: former ones, which a rollback needs. `ledger`: outcomes of changes. "
        "`tombstones` of deleted documents. `vectors`: cached ones that no chunk has. "
        "`compaction_interval`: between compactions of the archive, by default a day.",
        examples=['{"generations": "P7D", "ledger": null}'],
    )

    default_deadline: Duration = Field(
        default=timedelta(seconds=10), description="Deadline of a query that does not name one."
    )
    vector_search: VectorSearch = Field(
        default=VectorSearch(),
        description="Projects with up to `exact_chunks` chunks are searched without HNSW. "
        "`ef_search` is the breadth of an HNSW search (pgvector's hnsw.ef_search). "
        "`build_memory_bytes` is the most memory that Postgres may use to build an index; one that "
        "needs more is built several times slower. `build_processes` parallel workers help to "
        "build an index of 100,000 vectors or more, with shared memory of its size.",
        examples=['{"exact_chunks": 20000, "ef_search": 200}'],
    )

    gateway: GatewaySettings = Field(
        default=GatewaySettings(),
        description="The gateway: names of its hosts beside loopback, origins of pages that may "
        "call it, its limits, and repositories that webhooks sync (docs/how-to/webhooks.md).",
        examples=['{"hosts": ["kb.example.org"], "questions_per_key": 16}'],
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Hide passwords in the printed form."""
        for name, value in super().__repr_args__():
            yield name, masked(value) if isinstance(value, str) else value

    def variables(self) -> dict[str, str]:
        """Environment variables that give another process the same settings, secrets included."""
        chosen = self.model_dump(mode="json", include=self.model_fields_set, context=_REVEALED)
        return {
            f"HEADRACE_{name.upper()}": value if isinstance(value, str) else json.dumps(value)
            for name, value in chosen.items()
            if value is not None
        }

    @property
    def home_directory(self) -> Path:
        """``home`` as an absolute path, with ``~`` expanded."""
        return self.home.expanduser().absolute()

    @property
    def chosen_partitions(self) -> int | None:
        """``partitions`` if it is set. None means that the number of the deployment applies."""
        return self.partitions if "partitions" in self.model_fields_set else None

    @property
    def archive_location(self) -> str:
        """``archive_url``, or the default directory if it is empty."""
        return self.archive_url or str(self.home_directory / "archive")

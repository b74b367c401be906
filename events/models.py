"""Event models, as CloudEvents 1.0 in structured mode.

Each event class is an envelope around one data class. Every field has a limit, so that an event
that passes validation is safe to store and to compare.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from events.conditions import Where
from events.fields import (
    DOCUMENT_KINDS,
    Agent,
    Base64,
    Batch,
    Collection,
    Data,
    DocumentAgent,
    Instant,
    Kind,
    MediaType,
    Metadata,
    Project,
    ReplyKey,
    Scalar,
    Sha256,
    Text,
    Token,
    TraceParent,
    TraceState,
    Uri,
    problem_in_words,
)
from events.filters import Filters, Like, LikeOrText
from runtime import protocol_limits, traces
from runtime.errors import MalformedEvent

__all__ = [
    "DOCUMENT_KINDS",
    "EVENT_TYPES",
    "Agent",
    "Citation",
    "ContentReference",
    "DocumentChange",
    "DocumentChanged",
    "DocumentChunked",
    "DocumentChunkedData",
    "DocumentEmbedded",
    "DocumentEmbeddedData",
    "DocumentIndexed",
    "DocumentIndexedData",
    "DocumentKind",
    "DocumentRejected",
    "DocumentRejectedData",
    "Event",
    "ExactCounts",
    "Filters",
    "Judgement",
    "Kind",
    "Like",
    "Origin",
    "OtherMatch",
    "PageBox",
    "Problem",
    "Project",
    "Query",
    "QueryAnswer",
    "QueryAnswered",
    "QueryFailed",
    "QueryFailedData",
    "QueryFields",
    "QueryJudged",
    "QueryJudgedData",
    "QueryOptions",
    "QueryRequested",
    "RetrieverScore",
    "Scalar",
    "Scores",
    "SearchResult",
    "SourceLines",
    "Span",
    "TermMatch",
    "Token",
    "Uri",
    "Weights",
    "Where",
    "content_hash",
    "first_problem",
    "parse_event",
]

_FINGERPRINT_BYTES = 12


def _of_a_document(kind: Kind | None) -> Kind | None:
    if kind is Kind.CODE_EXAMPLE:
        raise ValueError("code_example is a part of documents, not a kind of document")
    return kind


DocumentKind = Annotated[Kind, AfterValidator(_of_a_document)]


def content_hash(content: str | bytes) -> str:
    """Return the SHA-256 of the bytes, or of the text in UTF-8, in hex."""
    raw = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()


def first_problem(error: ValidationError) -> str:
    """Describe the first wrong field and its error in one printable line that is safe to store."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if not where and first["type"] != "value_error":
        where = "event"
    message = problem_in_words(first)[:200]
    line = f"{where[:200]}: {message}" if where else message
    return "".join(character if character.isprintable() else " " for character in line)


class Event(BaseModel):
    """CloudEvents 1.0 envelope. Unknown extension attributes are ignored, as the standard says.

    ``traceparent`` and ``tracestate`` are the extension for distributed tracing; a wrong one is
    dropped. ``batch`` names the import that a change belongs to.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    TYPE: ClassVar[str]

    specversion: Literal["1.0"] = "1.0"
    id: Annotated[Text, Field(min_length=1, max_length=128)] = Field(
        default_factory=lambda: str(uuid4())
    )
    source: Annotated[Text, Field(min_length=1, max_length=512)] = "headrace"
    time: Instant = Field(default_factory=lambda: datetime.now(UTC))
    datacontenttype: Literal["application/json"] = "application/json"
    traceparent: TraceParent = None
    tracestate: TraceState = None
    batch: Batch | None = None
    type: str
    data: Any

    @property
    def trace(self) -> traces.Span:
        """The span in which the event was made; ``NO_SPAN`` if the event has no trace context."""
        return traces.remote(self.traceparent, self.tracestate)

    def in_trace(self, span: traces.Span) -> Self:
        """Return the event with the context of a span, unless the event has a context already."""
        context = {} if self.traceparent else span.context
        return self.model_copy(update=context) if context else self

    def to_bytes(self) -> bytes:
        """Serialize the event as UTF-8 JSON, the form in which it is sent."""
        return self.model_dump_json(exclude_none=True).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Parse and validate.

        Raises:
            MalformedEvent: too big, or not this event; the message names the first wrong field.
        """
        _check_size(raw)
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise MalformedEvent(f"{cls.TYPE}: {first_problem(error)}") from None


def _base64_characters(size: int) -> int:
    """Length in base64 of ``size`` bytes."""
    return 4 * -(-size // 3)


class ContentReference(Data):
    """Claim check: the content, text or bytes, is stored in Postgres under its hash."""

    sha256: Sha256
    size_bytes: Annotated[int, Field(ge=0, le=2**31)]


class Origin(Data):
    """Registered source of a document, and the revision of the source that the change belongs to.

    The revision of a sync is the log position at which it began, so that it can also be compared
    with the positions of other changes.
    """

    source: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    revision: Annotated[int, Field(ge=1, lt=2**63)]


class DocumentChange(Data):
    """Upsert, rename or delete of one document.

    A content that is not text travels as ``content_base64``. ``content_hash`` is the SHA-256 of
    the content's bytes, of a text in UTF-8.

    Only questions of ``agent`` see the document. The agents ``AGENT/ID`` and ``/ID`` belong to the
    overlay with this id: only questions in the overlay see their documents, in place of those of
    ``AGENT``, or of the shared ones, with the same uri. An empty content hides such a document.

    ``expected_hash`` makes a change conditional: it is applied only to a document with this content
    (of ``old_uri`` in a rename), else rejected as PreconditionFailed. A change that is older than
    the stored version is superseded, whatever it expects.
    """

    project: Project
    uri: Uri
    change: Literal["upsert", "delete", "rename"] = "upsert"
    old_uri: Uri | None = None
    content: Annotated[Text, Field(max_length=protocol_limits.INLINE_CONTENT_CHARACTERS)] | None = (
        None
    )
    content_base64: (
        Annotated[
            Base64, Field(max_length=_base64_characters(protocol_limits.INLINE_CONTENT_BYTES))
        ]
        | None
    ) = None
    content_ref: ContentReference | None = None
    content_hash: Sha256 | None = None
    media_type: MediaType | None = None
    kind: DocumentKind | None = None
    title: Annotated[Text, Field(max_length=protocol_limits.TITLE_CHARACTERS)] | None = None
    agent: DocumentAgent | None = None
    collections: Annotated[
        tuple[Collection, ...], Field(max_length=protocol_limits.COLLECTIONS)
    ] = ()
    commit: Annotated[str, Field(pattern=r"^[0-9A-Za-z._/-]{1,64}$")] | None = None
    permalink_template: Annotated[Text, Field(max_length=2048)] | None = None
    metadata: Metadata = Field(default_factory=dict)
    origin: Origin | None = None
    expected_hash: Sha256 | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        forms = (self.content, self.content_base64, self.content_ref)
        bodies = sum(form is not None for form in forms)
        if self.change == "delete" and bodies:
            raise ValueError("a delete carries no content")
        if self.change != "delete" and bodies != 1:
            raise ValueError(f"{self.change} needs either content, content_base64 or content_ref")
        if (self.change == "rename") != (self.old_uri is not None):
            raise ValueError("old_uri is required for a rename, and allowed only there")
        if self.old_uri == self.uri:
            raise ValueError("a rename needs two different uris")
        body = None if self.content_hash is None else self.body
        if body is not None and self.content_hash != content_hash(body):
            raise ValueError("content_hash is not the SHA-256 of content")
        return self

    @property
    def body(self) -> str | bytes | None:
        """Content that is in the event, as text or as decoded bytes. None if it has none."""
        return self.content if self.content_base64 is None else b64decode(self.content_base64)

    def fingerprint(self) -> str:
        """Return 16 characters that are equal for equal changes: 96 bits of a hash, in base64.

        Content counts by its SHA-256, inline or referenced; the order of collections and metadata
        does not count. Fields at their defaults are left out, so that a version with more fields
        makes the same fingerprints.
        """
        digest = None if self.content_ref is None else self.content_ref.sha256
        body = self.body
        if body is not None:
            digest = self.content_hash or content_hash(body)
        counted_otherwise = {
            "content",
            "content_base64",
            "content_ref",
            "content_hash",
            "collections",
        }
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude=counted_otherwise)
        identity = json.dumps([digest, sorted(set(self.collections)), fields], sort_keys=True)
        hashed = hashlib.sha256(identity.encode()).digest()
        return b64encode(hashed[:_FINGERPRINT_BYTES]).decode()


class DocumentChanged(Event):
    """A document was created, edited, renamed or deleted."""

    TYPE: ClassVar[str] = "document.changed"
    type: Literal["document.changed"] = "document.changed"
    data: DocumentChange


class Problem(Data):
    """Description of an error, in the style of RFC 9457."""

    type: Annotated[str, Field(max_length=128)]
    detail: Annotated[str, Field(max_length=4000)]
    retryable: bool = False


class DocumentIndexedData(Data):
    """Outcome of a ``document.changed``. ``agent``: the only agent that may see the document.

    ``chunks_pending`` chunks are searchable by keyword already, and by vector after
    ``document.embedded``. ``created``: the document did not exist before, or was deleted; it is
    false for a duplicate. ``code_examples`` is the number of its chunks that only a search for code
    examples returns. ``warnings`` say what could not be read of the document.
    """

    event_id: str
    token: Token
    project: Project
    uri: Uri
    agent: DocumentAgent | None = None
    change: Literal["upsert", "delete", "rename"]
    outcome: Literal["indexed", "superseded", "duplicate"]
    created: bool = False
    chunks_kept: int = 0
    chunks_added: int = 0
    chunks_removed: int = 0
    chunks_embedded: int = 0
    chunks_pending: int = 0
    code_examples: int = 0
    tokens_embedded: int = 0
    cost_usd: float = 0.0
    searchable_after_ms: float = 0.0
    warnings: Annotated[
        tuple[Annotated[str, Field(max_length=protocol_limits.WARNING_CHARACTERS)], ...],
        Field(max_length=protocol_limits.WARNINGS),
    ] = ()


class DocumentIndexed(Event):
    """A change was applied now or before at this position, or is older than the stored version."""

    TYPE: ClassVar[str] = "document.indexed"
    type: Literal["document.indexed"] = "document.indexed"
    data: DocumentIndexedData


class DocumentChunkedData(Data):
    """Document with chunks that still need vectors. ``token`` is that of its change."""

    event_id: str
    token: Token
    project: Project
    uri: Uri
    agent: DocumentAgent | None = None
    generation: int
    chunks: int
    published_at: Instant


class DocumentChunked(Event):
    """A document is searchable by keyword; its vectors are still to be computed."""

    TYPE: ClassVar[str] = "document.chunked"
    type: Literal["document.chunked"] = "document.chunked"
    data: DocumentChunkedData


class DocumentEmbeddedData(Data):
    """Vectors that the embedder added to a document. ``token`` is that of its change.

    All numbers are 0 if a newer change replaced the document first. ``chunks_refused`` counts texts
    that the model refuses; they are searchable by keyword only. ``embedded_after_ms`` is the time
    from publish to the last vector.
    """

    event_id: str
    token: Token
    project: Project
    uri: Uri
    agent: DocumentAgent | None = None
    generation: int
    chunks_embedded: int = 0
    chunks_refused: int = 0
    tokens_embedded: int = 0
    cost_usd: float = 0.0
    embedded_after_ms: float = 0.0


class DocumentEmbedded(Event):
    """All chunks of a change have their vectors, or were refused by the model."""

    TYPE: ClassVar[str] = "document.embedded"
    type: Literal["document.embedded"] = "document.embedded"
    data: DocumentEmbeddedData


class DocumentRejectedData(Data):
    """Reason why a ``document.changed`` was rejected. Unknown parts are absent.

    A change whose ``expected_hash`` does not match (``PreconditionFailed``) is not dead-lettered:
    its publisher can read the document again, and an operator can do nothing.
    """

    event_id: str | None = None
    token: Token
    project: str | None = None
    uri: str | None = None
    agent: str | None = None
    problem: Problem
    attempts: int = 1


class DocumentRejected(Event):
    """A change was not applied: it was dead-lettered, or the document is not as it expects."""

    TYPE: ClassVar[str] = "document.rejected"
    type: Literal["document.rejected"] = "document.rejected"
    data: DocumentRejectedData


class Weights(Data):
    """Relative weight of each retriever in the fusion."""

    vector: Annotated[float, Field(ge=0, le=1)] = 0.5
    keyword: Annotated[float, Field(ge=0, le=1)] = 0.5

    @model_validator(mode="after")
    def _not_both_zero(self) -> Self:
        if self.vector + self.keyword == 0:
            raise ValueError("at least one weight must be above 0")
        return self


def _is_unused(value: object) -> bool:
    """Leave a field out if it is not used: workers of a version without it refuse it."""
    return not value


_Flag = Annotated[bool, Field(exclude_if=_is_unused)]


class QueryOptions(Data):
    """Options of a query that are one value each, as an address can give them; see ``Query``."""

    limit: Annotated[int, Field(ge=1, le=protocol_limits.RESULTS)] = protocol_limits.USUAL_RESULTS
    mode: Literal["hybrid", "vector", "keyword", "exact"] = "hybrid"
    operators: _Flag = False
    regex: _Flag = False
    ignore_case: _Flag = False
    whole_words: _Flag = False
    context_lines: Annotated[
        int, Field(ge=0, le=protocol_limits.CONTEXT_LINES, exclude_if=_is_unused)
    ] = 0
    per_file: _Flag = False
    after: Annotated[Text, Field(max_length=protocol_limits.PLACE_CHARACTERS)] | None = None
    min_event: Token | None = None
    overlay: Annotated[Text, Field(min_length=1, max_length=protocol_limits.URI_BYTES)] | None = (
        None
    )
    vectors: bool | None = None
    max_wait_ms: Annotated[int, Field(ge=0, le=60_000)] = 5_000
    explain: bool = False
    context_tokens: Annotated[int, Field(ge=32, le=protocol_limits.CONTEXT_TOKENS)] | None = None
    context_tokenizer: Annotated[Text, Field(min_length=1, max_length=128)] | None = None
    min_similarity: Annotated[float, Field(ge=0, le=1)] | None = None
    rerank: bool = True
    min_relevance: Annotated[float, Field(ge=0, le=1)] | None = None
    group: Literal["chunk", "document"] = "chunk"
    sections: _Flag = False
    diversity: Annotated[float, Field(ge=0, le=1)] = 0.0


_EXACT_FIELDS = ("regex", "ignore_case", "whole_words", "context_lines", "per_file", "after")


class QueryFields(QueryOptions):
    """Fields that the author of a query chooses, over HTTP as over the streams; see ``Query``."""

    text: Annotated[
        Text,
        Field(
            min_length=1,
            max_length=protocol_limits.QUERY_CHARACTERS,
            pattern=r"\S",
            exclude_if=lambda text: not text,
        ),
    ] = ""
    like: LikeOrText | None = None
    weights: Weights | None = None
    filters: Filters = Filters()

    @model_validator(mode="after")
    def _asks_once(self) -> Self:
        if not self.text and self.like is None:
            raise ValueError("the question is empty: it needs a text, or like")
        if self.text and self.like is not None:
            raise ValueError("a question has a text or like, not both")
        if self.like is not None and self.mode == "exact":
            raise ValueError("like has no mode exact: use hybrid, vector or keyword")
        if self.like is not None and self.min_relevance is not None:
            raise ValueError(
                "min_relevance needs a text, which a reranker compares: leave out like"
            )
        return self


class Query(QueryFields):
    """A question to one project.

    It is a ``text``, or it asks for chunks ``like`` another one: by the vector of that chunk, and
    by its 15 rarest terms. No model is called then, and the chunk itself is left out.

    It waits until ``min_event`` is searchable by keyword and, with ``vectors``, by vector too.

    ``overlay`` is the name of an overlay: the documents that a work tree or a branch has in another
    version take the place of the synced ones, and those that it does not have are left out.

    ``min_similarity`` is the least cosine similarity of a result to the question, whichever
    retriever returned it. So a chunk without a vector is not a result, even if its words match.

    If the workers have a reranker, it orders the best results, unless ``rerank`` is false.
    ``min_relevance`` is the least relevance of a result by the reranker, so that an answer may have
    no results. It is not applied if the reranker fails: then ``degraded`` contains ``rerank``.

    With ``operators``, ``path:``, ``lang:``, ``symbol:``, ``kind:``, ``"a phrase"`` and ``-word``
    in ``text`` are filters, except in the mode ``exact``. A text of operators alone is a list.

    In the mode ``exact``, ``text`` is a pattern that is found within lines: a literal or, with
    ``regex``, a regular expression. ``ignore_case`` and ``whole_words`` apply to both.
    Results are lines that match, in path order, with ``context_lines`` before and after them; with
    ``per_file``, the first of each document. ``after`` is ``next`` of the answer before.

    With ``group`` "document", each result is the best passage of a document, and ``limit`` counts
    documents. With ``sections``, code and other documents have rankings of their own: ``limit``
    holds for each, and the results of a section follow each other, those of the better one first.
    It has no effect if the filters name kinds, and in the mode ``exact``.

    ``diversity`` puts results that differ from those above them first: 0 is off, and 1 ignores
    relevance. ``context_tokenizer`` names the tokenizer that counts ``context_tokens``, or an
    OpenAI model that uses it; without it, that of the embedding model counts.
    """

    project: Project
    agent: Agent | None = None
    deadline: Instant | None = None
    reply_to: ReplyKey

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.vectors and self.min_event is None:
            raise ValueError("vectors needs min_event")
        exact = [name for name in _EXACT_FIELDS if getattr(self, name)]
        if exact and self.mode != "exact":
            raise ValueError(f"{exact[0]} needs the mode exact")
        if self.min_similarity is not None and self.mode in ("keyword", "exact"):
            raise ValueError("min_similarity needs vectors: use the mode hybrid or vector")
        if self.min_relevance is not None and (not self.rerank or self.mode == "exact"):
            raise ValueError("min_relevance needs the reranker, which the mode exact does not use")
        if self.context_tokenizer is not None and self.context_tokens is None:
            raise ValueError("context_tokenizer needs context_tokens")
        return self


class QueryRequested(Event):
    """A client asks a question."""

    TYPE: ClassVar[str] = "query.requested"
    type: Literal["query.requested"] = "query.requested"
    data: Query


class RetrieverScore(Data):
    """Rank (from 1) and raw score of a chunk in one retriever: cosine similarity, or BM25."""

    rank: int
    score: float


class Scores(Data):
    """Scores behind the rank of a chunk.

    ``reranked`` is its relevance to the question by a reranker: 0 to 1 by a local one, else as the
    provider returns it.
    """

    vector: RetrieverScore | None = None
    keyword: RetrieverScore | None = None
    fused: float
    reranked: float | None = None


class PageBox(Data):
    """Rectangle on a page, in points from the page's lower left corner. Pages count from 1."""

    page: int
    left: float
    bottom: float
    right: float
    top: float


class Citation(Data):
    """Location of a chunk in its source. Lines count from 1, both ends included.

    The lines of a document that is not text are those of its extracted text. ``page`` is the first
    page, slide or sheet; ``pages`` are the boxes of the chunk, at most one per page. ``fragment``
    follows ``uri#``: ``page=3``, ``cell=12``, ``slide=4``, ``Costs!A2:F41``, ``turns=12-15``,
    ``GET /pets/{petId}`` or an id of an HTML element. ``speakers`` and ``times`` (first and last)
    are those of a conversation.
    """

    uri: str
    start_line: int
    end_line: int
    page: int | None = None
    pages: tuple[PageBox, ...] = ()
    fragment: str | None = None
    speakers: tuple[str, ...] = ()
    times: Annotated[tuple[datetime, ...], Field(max_length=2)] = ()
    symbol: str | None = None
    heading_path: tuple[str, ...] = ()
    commit: str | None = None
    permalink: str | None = None

    @property
    def place(self) -> str:
        """The location to print: ``uri:start-end``, ``uri page N`` or ``uri#fragment``."""
        if self.fragment and not self.fragment.startswith("page="):
            return f"{self.uri}#{self.fragment}"
        if self.page is not None:
            return f"{self.uri} page {self.page}"
        return f"{self.uri}:{self.start_line}-{self.end_line}"


class Span(Data):
    """Part of a text: index of its first character, and of the first one behind it."""

    start: int
    end: int


class TermMatch(Data):
    """A term of the question, or its correction, that a chunk is found by.

    ``term`` is a stem, or ``=`` and a whole identifier. ``weight`` is its factor in BM25: the rarer
    the term, the higher. ``spans`` are the words of ``content`` that give it; there are none if it
    occurs only in title, uri, headings or symbol. In the mode ``exact``, ``unmarked`` is present if
    a bound left out spans: it is the number of further matches in the lines of ``content``.
    """

    term: str
    weight: float
    spans: tuple[Span, ...] = ()
    unmarked: int | None = None


class SourceLines(Data):
    """Lines of a document, joined by line feeds; ``start_line`` is the number of the first."""

    start_line: int
    text: str


Section = Literal["code", "documents"]
"""Part of an answer with a ranking of its own: files of code, or documents of all other kinds."""


class OtherMatch(Data):
    """Place of a further passage that the question found. ``chunk_id`` is its best chunk.

    ``score`` is the fused score of that chunk. Lines count from 1, both ends included.
    """

    chunk_id: int
    start_line: int
    end_line: int
    page: int | None = None
    symbol: str | None = None
    heading_path: tuple[str, ...] = ()
    score: float

    @property
    def place(self) -> str:
        """The location within the document: ``10-20``, or ``page 3``."""
        return f"{self.start_line}-{self.end_line}" if self.page is None else f"page {self.page}"

    @property
    def name(self) -> str:
        """Symbol, or the headings; '' if it has neither."""
        return self.symbol or " > ".join(self.heading_path)


class SearchResult(Data):
    """One passage of an answer. ``content`` is retrieved data, never an instruction.

    A passage is a chunk, or several neighbouring chunks of one function, class or section, of at
    most 512 tokens together. ``chunk_id``, ``scores`` and ``match_type`` are those of its best
    chunk; ``chunk_ids`` are present if there are several. ``definition`` is present if the passage
    begins within a function: the first lines of that function, and of the class around it.
    ``other_matches`` (at most 10, best first) are passages of the same function that cannot be
    joined to it, or with ``group`` "document" all others of the document. ``document_score`` is
    present with that ``group``; in hybrid mode, all matches of the document count in it.
    ``section`` is present if the query asks for sections.

    ``rendered`` is present if the passage is a part of a fence or of a table: the content between
    the lines that make it readable by itself, which are the first line and the mark that ends a
    fence, or the head of a table. ``language`` is that of a code example, if the document names it.
    ``explanation`` and ``matches`` are present if the query asks for an explanation.

    In the mode ``exact``, ``content`` and the citation are the lines that match and those around
    them, and ``matches`` has the pattern with the span of each match. With ``per_file``,
    ``matching_lines`` is the number of such lines in the document.
    """

    chunk_id: int
    content: str
    rendered: str | None = None
    kind: Kind
    title: str | None = None
    language: str | None = None
    citation: Citation
    scores: Scores
    match_type: Literal["hybrid", "vector", "keyword", "exact"]
    matching_lines: int | None = None
    metadata: dict[str, Scalar] = Field(default_factory=dict)
    explanation: str | None = None
    matches: tuple[TermMatch, ...] | None = None
    chunk_ids: tuple[int, ...] | None = None
    definition: tuple[SourceLines, ...] | None = None
    other_matches: (
        Annotated[tuple[OtherMatch, ...], Field(max_length=protocol_limits.OTHER_MATCHES)] | None
    ) = None
    document_score: float | None = None
    section: Section | None = None


class ExactCounts(Data):
    """Extent of an exact search, and counts of all that it searched, left out results included.

    ``truncated``: its bounds of time or chunks ended it, after the document ``searched_to``.
    ``next`` is the value of ``after`` for what was left out; there is none if nothing was, and in a
    list of definitions.
    """

    matches: int
    files: int
    truncated: bool = False
    searched_to: str | None = None
    next: str | None = None


class QueryAnswer(Data):
    """The answer to one query.

    ``watermark`` maps each document stream (``lane:partition``) to the entry id up to which every
    event had been applied when the search began. ``stale`` is true if ``min_event`` was not yet
    applied. ``coverage`` is the share (0 to 1) of the searched chunks that have a vector; if it is
    below 1, ``degraded`` contains ``vector``. ``searched_chunks`` is the number of chunks in the
    scope of the search: those of the generation that the agent may see and that pass the filters.
    It is at most 30 seconds old, or at most 10 minutes if counting again took longer than the
    search, and absent if it could not be counted. In the mode ``exact`` it is the number of chunks
    that were examined, and ``exact`` is present. ``weak`` is true if nothing seems to answer the
    query: its ``confidence`` is low, or no result has its ``min_relevance``. ``confidence`` (0 to
    1) is the share of unrelated questions whose best result is less similar than this one's. It is
    absent in the mode ``keyword``, without complete vectors, and until the project was measured. If
    the reranker failed, ``degraded`` contains ``rerank``, and the results are in the order without
    it.
    """

    query_id: str
    project: Project
    results: tuple[SearchResult, ...]
    context: str | None = None
    watermark: dict[str, str]
    stale: bool = False
    generation: int = 1
    timings_ms: dict[str, float] = Field(default_factory=dict)
    coverage: float = 1.0
    searched_chunks: int | None = None
    degraded: tuple[str, ...] = ()
    confidence: float | None = None
    weak: bool = False
    corrections: dict[str, str] = Field(default_factory=dict)
    exact: ExactCounts | None = None


class QueryAnswered(Event):
    """Reply to a query that could be answered; a query gets exactly one reply."""

    TYPE: ClassVar[str] = "query.answered"
    type: Literal["query.answered"] = "query.answered"
    data: QueryAnswer


class QueryFailedData(Data):
    """Reason for a missing answer."""

    query_id: str
    project: str | None = None
    problem: Problem


class QueryFailed(Event):
    """Reply to a query that could not be answered; a query gets exactly one reply."""

    TYPE: ClassVar[str] = "query.failed"
    type: Literal["query.failed"] = "query.failed"
    data: QueryFailedData


class Judgement(Data):
    """Verdict on one result of an answer: it was shown, opened, used or rejected.

    ``query_id`` and ``chunk_id`` are those of the answer. ``rank`` (from 1) is where the result was
    shown; without it, it is the rank in the answer.
    """

    query_id: Annotated[Text, Field(min_length=1, max_length=128)]
    chunk_id: Annotated[int, Field(ge=1, le=2**63 - 1)]
    verdict: Literal["shown", "opened", "used", "rejected"]
    rank: Annotated[int, Field(ge=1, le=protocol_limits.RESULTS)] | None = None


class QueryJudgedData(Judgement):
    """A judgement of the agent that asked the question."""

    project: Project
    agent: Agent | None = None


class QueryJudged(Event):
    """An asker judges one result of an answer that it got."""

    TYPE: ClassVar[str] = "query.judged"
    type: Literal["query.judged"] = "query.judged"
    data: QueryJudgedData


EVENT_TYPES: dict[str, type[Event]] = {
    event.TYPE: event
    for event in (
        DocumentChanged,
        DocumentChunked,
        DocumentIndexed,
        DocumentEmbedded,
        DocumentRejected,
        QueryRequested,
        QueryAnswered,
        QueryFailed,
        QueryJudged,
    )
}


def _check_size(raw: bytes) -> None:
    if len(raw) > protocol_limits.EVENT_BYTES:
        raise MalformedEvent(
            f"{len(raw):,} bytes are too many for an event "
            f"(at most {protocol_limits.EVENT_BYTES:,})",
            "send the content as content_ref",
        )


class _Typed(BaseModel):
    """The part of an envelope that is needed to read its type."""

    model_config = ConfigDict(extra="ignore")
    type: str


def parse_event(raw: bytes) -> Event:
    """Parse any event by its ``type`` attribute.

    Raises:
        MalformedEvent: too big, not JSON, no type, an unknown type, or a field out of its limits.
    """
    _check_size(raw)
    try:
        kind = _Typed.model_validate_json(raw).type
    except ValidationError as error:
        raise MalformedEvent(f"not a CloudEvent: {first_problem(error)}") from None
    if kind not in EVENT_TYPES:
        raise MalformedEvent(f"unknown type {kind[:80]!r}", f"use one of {', '.join(EVENT_TYPES)}")
    return EVENT_TYPES[kind].from_bytes(raw)

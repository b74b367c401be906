"""Retrieval quality on questions with known answers.

A set is a directory in the form of BEIR (Thakur et al., 2021): ``corpus.jsonl`` (``_id``,
``title``, ``text``), ``queries.jsonl`` (``_id``, ``text``) and ``qrels.tsv`` (a heading, then query
id, document id, grade). The rank of a document is that of its best chunk.

In a set of judgements, ``corpus.jsonl`` names documents of a project (``_id``, ``project``), and
nothing is published. A question may have ``filters`` and an ``agent``.
"""

from __future__ import annotations

import json
import statistics
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from math import log2
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from pydantic import ValidationError

from bench.figures import percentile
from events.client.client import Client
from events.client.publisher import Receipt
from events.models import (
    DocumentChange,
    DocumentChanged,
    DocumentIndexed,
    DocumentRejected,
    Filters,
    Section,
    first_problem,
)
from events.names import Lane
from runtime.errors import UsageError

__all__ = [
    "DEPTH",
    "MODES",
    "EvaluationSet",
    "Mode",
    "Questions",
    "change_of",
    "evaluate",
    "index",
    "load",
    "load_questions",
    "ndcg",
    "recall",
    "reciprocal_rank",
    "score",
    "summarise",
]

Mode = Literal["hybrid", "vector", "keyword"]
Ask = Callable[[str, Mode], Awaitable[Sequence[str]]]
"""Asks a question, by its id, in a mode; returns the uri of each chunk of the answer, best first.
"""

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of items done, and their total."""

Record = Callable[[Mode, str, Sequence[str]], None]
"""Called with the mode, the id of a query, and the uris of its answer, each once, best first."""

MODES: tuple[Mode, ...] = ("hybrid", "vector", "keyword")
DEPTH = 10
CHUNKS_PER_ANSWER = 100
"""Number of chunks requested, so that at least ten documents are among them."""

_BATCH = 256
_WARM_UP_QUERIES = 5
_TITLE_CHARACTERS = 512
_QUERY_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Questions:
    """Queries by id, their further arguments, and grades by query id and document id."""

    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """Documents as (id, title, text), queries by id, and grades by query id and document id.

    ``project`` is the project that has the documents already; they are empty then. ``options`` are
    further arguments of ``Client.ask``, by query id.
    """

    name: str
    documents: Sequence[tuple[str, str, str]]
    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]
    project: str | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load(directory: Path) -> EvaluationSet:
    """Read a set; queries without a relevant document are left out.

    Raises:
        UsageError: a file is missing or a line is ill-formed; the message names it.
    """
    path = directory / "corpus.jsonl"
    project = _referenced_project(path)
    documents = [] if project else [_document(row) for row in _json_lines(path, ("_id", "text"))]
    if not documents and project is None:
        raise UsageError(f"{directory} has no documents")
    questions = load_questions(directory)
    name = directory.resolve().name
    return EvaluationSet(
        name, documents, questions.queries, questions.grades, project, questions.options
    )


def _document(row: Mapping[str, Any]) -> tuple[str, str, str]:
    title = row.get("title")
    return row["_id"], title if isinstance(title, str) else "", row["text"]


def _referenced_project(path: Path) -> str | None:
    """Project that has the documents of a set; None if the set has them itself."""
    first = next(_json_lines(path, ("_id",)), {})
    if "text" in first or "project" not in first:
        return None
    projects = sorted({str(row["project"]) for row in _json_lines(path, ("_id", "project"))})
    if len(projects) > 1:
        names = " and ".join(projects)
        raise UsageError(f"{path} names several projects: {names}", "make a set for each")
    return projects[0]


def load_questions(directory: Path) -> Questions:
    """Read a set without its documents; queries without a relevant document are left out.

    Raises:
        UsageError: a file is missing or a line is ill-formed; the message names it.
    """
    path = directory / "queries.jsonl"
    rows = {row["_id"]: row for row in _json_lines(path, ("_id", "text"))}
    queries = {key: row["text"] for key, row in rows.items()}
    grades = _grades(directory / "qrels.tsv")
    decision = {key: text for key, text in queries.items() if any(grades.get(key, {}).values())}
    if not decision:
        raise UsageError(f"{directory} has no queries with answers")
    options = {key: _options(rows[key], path) for key in decision}
    return Questions(decision, grades, {key: value for key, value in options.items() if value})


def _options(row: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Arguments of ``Client.ask`` that a line of queries.jsonl gives beside the text."""
    try:
        filters = Filters.model_validate(row.get("filters") or {})
    except ValidationError as error:
        raise UsageError(f"{path}: filters of {row['_id']}: {first_problem(error)}") from None
    options = {"filters": filters if row.get("filters") else None, "agent": row.get("agent")}
    return {name: value for name, value in options.items() if value is not None}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as lines:
            yield from ((n, line.rstrip("\n")) for n, line in enumerate(lines, 1) if line.strip())
    except FileNotFoundError:
        required_files = "queries.jsonl and qrels.tsv, and also corpus.jsonl if it is to be indexed"
        raise UsageError(f"{path} is missing: an evaluation set has {required_files}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} can't be read: {error}") from None


def _json_lines(path: Path, required: Sequence[str]) -> Iterator[dict[str, Any]]:
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path} line {number} is not JSON: {error}") from None
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in required):
            fields = " and ".join(required)
            raise UsageError(f"{path} line {number} must be an object with the texts {fields}")
        yield row


def _grades(path: Path) -> dict[str, dict[str, int]]:
    grades: dict[str, dict[str, int]] = {}
    for number, line in islice(_lines(path), 1, None):
        try:
            query, document, grade = line.split("\t")
            grades.setdefault(query, {})[document] = int(grade)
        except ValueError:
            expected = "query id, document id and a whole grade between tabs"
            raise UsageError(f"{path} line {number} must be {expected}") from None
    return grades


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """Normalised discounted cumulative gain: the gain is the grade, the discount log2(rank + 1).

    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002, with the
    discount of trec_eval.
    """
    ideal = _discounted(sorted(grades.values(), reverse=True)[:depth])
    return _discounted([grades.get(uri, 0) for uri in ranked[:depth]]) / ideal if ideal else 0.0


def _discounted(gains: Sequence[int]) -> float:
    return sum(max(gain, 0) / log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def recall(ranked: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """Share of the documents with a grade above 0 that are among the first ``depth``."""
    relevant = {uri for uri, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranked[:depth])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranked: Sequence[str], grades: Mapping[str, int], depth: int = DEPTH) -> float:
    """1 / rank of the first document with a grade above 0; 0 if none is among ``depth``."""
    ranks = (n for n, uri in enumerate(ranked[:depth], start=1) if grades.get(uri, 0) > 0)
    return 1 / next(ranks, float("inf"))


def summarise(
    rankings: Mapping[str, Sequence[str]],
    grades: Mapping[str, Mapping[str, int]],
    latencies_ms: Sequence[float],
) -> dict[str, float]:
    """Average the measures over the queries, and add percentiles of the latency."""
    scored = [(ranked, grades[query]) for query, ranked in rankings.items()]
    timed = [*latencies_ms] * 2
    return {
        f"ndcg@{DEPTH}": statistics.fmean(ndcg(*pair) for pair in scored),
        f"recall@{DEPTH}": statistics.fmean(recall(*pair) for pair in scored),
        f"mrr@{DEPTH}": statistics.fmean(reciprocal_rank(*pair) for pair in scored),
        "p50_ms": percentile(timed, 50),
        "p99_ms": percentile(timed, 99),
    }


async def evaluate(
    directory: Path,
    client: Client,
    *,
    modes: Sequence[Mode] = MODES,
    project: str | None = None,
    section: Section | None = None,
    patience: timedelta = timedelta(minutes=2),
    timeout: timedelta = timedelta(seconds=30),
    progress: Progress = lambda _what, _done, _total: None,
) -> dict[str, dict[str, float]]:
    """Index a set in its own project and score each mode's answers.

    Titles over 512 characters and queries over 2,000 are cut to the limits of an event. Files of a
    repository, whose title is their path, are published as ``sync`` publishes them: without one.

    Args:
        directory: the set.
        client: a client of a running deployment.
        modes: retrievers to score.
        project: project of the documents; by default that which the set refers to, or one that is
            named after the set and its content.
        section: score this section of answers that are divided, as an asker sees it.
        patience: longest time without any outcome while the corpus is indexed.
        timeout: deadline of one query.
        progress: called with the progress of the work.

    Raises:
        UsageError: the set is ill-formed, or a document in it was rejected.
        Unavailable: no worker answers, or a server can't be reached.
    """
    dataset = load(directory)
    project = await index(dataset, client, project=project, patience=patience, progress=progress)
    return await score(
        dataset, client, project, modes=modes, section=section, timeout=timeout, progress=progress
    )


async def index(
    dataset: EvaluationSet,
    client: Client,
    *,
    project: str | None = None,
    patience: timedelta = timedelta(minutes=2),
    progress: Progress = lambda _what, _done, _total: None,
) -> str:
    """Publish a set's documents and wait for their vectors; return the name of their project.

    Nothing is published if the set refers to the documents of a project.

    Raises:
        UsageError: a document was rejected.
        Unavailable: no worker answers, or a server can't be reached.
    """
    if dataset.project is not None:
        return dataset.project
    project = project or _project_name(dataset)
    receipts = await _publish(dataset, client, project)
    done = 0
    async for outcome in client.outcomes(receipts, patience, vectors=True):
        if isinstance(outcome, DocumentRejected):
            detail = outcome.data.problem.detail
            raise UsageError(f"document {outcome.data.uri!r} was rejected: {detail}")
        if isinstance(outcome, DocumentIndexed) and outcome.data.chunks_pending:
            continue
        done += 1
        progress("indexing", done, len(receipts))
    return project


async def score(
    dataset: EvaluationSet,
    client: Client,
    project: str,
    *,
    modes: Sequence[Mode] = MODES,
    section: Section | None = None,
    timeout: timedelta = timedelta(seconds=30),
    progress: Progress = lambda _what, _done, _total: None,
    record: Record = lambda _mode, _query, _uris: None,
) -> dict[str, dict[str, float]]:
    """Ask a set's questions in a project that holds its documents; return the scores by mode.

    ``record`` is called with each answer. With ``section``, it is that part of a divided answer,
    which has the ten best documents of each.

    Raises:
        Unavailable: no worker answers, or a server can't be reached.
    """
    shape: dict[str, Any] = {"limit": CHUNKS_PER_ANSWER}
    if section is not None:
        shape = {"limit": DEPTH, "group": "document", "sections": True}

    async def ask(query: str, mode: Mode) -> Sequence[str]:
        text = dataset.queries[query][:_QUERY_CHARACTERS]
        options = {**shape, **dataset.options.get(query, {})}
        answer = await client.ask(project, text, mode=mode, timeout=timeout, **options)
        return [result.citation.uri for result in answer.results if result.section == section]

    return {mode: await _score(dataset, ask, mode, progress, record) for mode in modes}


def _project_name(dataset: EvaluationSet) -> str:
    """Name a project by its corpus, so that no document of an older corpus is ever in an answer."""
    letters = (
        letter if letter.isalnum() and letter.isascii() else "-" for letter in dataset.name.lower()
    )
    slug = "".join(letters)
    checksum = zlib.crc32(repr(dataset.documents).encode())
    return f"eval-{slug[:45]}-{checksum:08x}"


async def _publish(dataset: EvaluationSet, client: Client, project: str) -> list[Receipt]:
    remaining = iter(dataset.documents)
    receipts: list[Receipt] = []
    while batch := list(islice(remaining, _BATCH)):
        changes = [change_of(project, *document) for document in batch]
        receipts += await client.publish_many(changes, Lane.BULK)
    return receipts


def change_of(project: str, uri: str, title: str, text: str) -> DocumentChanged:
    """Build the event of a document; a title that repeats the uri is left out, as by ``sync``."""
    change = DocumentChange(
        project=project,
        uri=uri,
        title=None if title == uri else title[:_TITLE_CHARACTERS] or None,
        content=text,
    )
    return DocumentChanged(source="headrace/eval", data=change)


async def _score(
    dataset: EvaluationSet, ask: Ask, mode: Mode, progress: Progress, record: Record
) -> dict[str, float]:
    rankings: dict[str, list[str]] = {}
    latencies_ms = []
    for query in islice(dataset.queries, _WARM_UP_QUERIES):
        await ask(query, mode)
    for query in dataset.queries:
        begin = perf_counter()
        uris = await ask(query, mode)
        latencies_ms.append((perf_counter() - begin) * 1000)
        rankings[query] = list(dict.fromkeys(uris))
        record(mode, query, rankings[query])
        progress(mode, len(rankings), len(dataset.queries))
    return summarise(rankings, dataset.grades, latencies_ms)

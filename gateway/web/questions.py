"""Screen to ask: the question with its filters, the answer with its reasons, and judgements."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from operator import attrgetter
from typing import Any

from markupsafe import Markup
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from content.signatures import signature_of, symbols_of
from events.models import (
    Judgement,
    Kind,
    OtherMatch,
    QueryAnswer,
    SearchResult,
    Weights,
    first_problem,
)
from events.streams.dead_letters import instant_of
from gateway.knowledge import Question
from gateway.web.highlights import Line, best_window, highlighted, word_spans
from gateway.web.presentation import address, outside_link
from gateway.web.visits import Problem, Visit
from runtime import protocol_limits
from runtime.errors import HeadraceError, UsageError
from store.search.keyword.tokenizer import EXACT

__all__ = ["Result", "judge", "results_of", "show"]

_MATCHES = {
    "hybrid": "meaning and words",
    "vector": "meaning",
    "keyword": "words",
    "exact": "exact text",
}
"""Words for the ways in which a question found a result."""
_MODES = {"hybrid": "Both", "vector": "Meaning", "keyword": "Words", "exact": "Exact"}
_KINDS = tuple(kind.value for kind in Kind)
_SHOWN_LINES = 14
_BALANCED = 50
_SMALLEST_CONTEXT = 32
_VERDICTS = {"used": "useful", "rejected": "not useful"}


@dataclass(frozen=True, slots=True)
class _Question:
    """Question and filters, as the address names them.

    ``like`` is a place or the id of a chunk; it is '' if there is a text. ``together``: code and
    other documents are in one ranking.
    """

    text: str
    like: str
    mode: str
    kind: str
    under: str
    collection: str
    path: str
    lang: str
    symbol: str
    where: str
    balance: int
    limit: int
    similarity: float
    grouped: bool
    together: bool
    diversity: float
    context_tokens: int

    @classmethod
    def of(cls, visit: Visit) -> _Question:
        """Read the address; a value outside of its limits counts as the nearest inside."""
        mode, kind = visit.parameter("mode"), visit.parameter("kind")
        text = visit.parameter("q")[: protocol_limits.QUERY_CHARACTERS]
        return cls(
            text=text,
            like="" if text else visit.parameter("like"),
            mode=mode if mode in _MODES else "hybrid",
            kind=kind if kind in _KINDS else "",
            under=visit.parameter("under"),
            collection=visit.parameter("collection"),
            path=visit.parameter("path"),
            lang=visit.parameter("lang"),
            symbol=visit.parameter("symbol"),
            where=visit.parameter("where"),
            balance=int(visit.number("balance", _BALANCED, 0, 100)),
            limit=int(visit.number("limit", protocol_limits.USUAL_RESULTS, 1, 50)),
            similarity=visit.number("similarity", 0, 0, 1),
            grouped=bool(visit.parameter("grouped")),
            together=bool(visit.parameter("together")),
            diversity=visit.number("diversity", 0, 0, 1),
            context_tokens=int(visit.number("context", 0, 0, protocol_limits.CONTEXT_TOKENS)),
        )

    def asked(self) -> Question:
        """The question in the form of the gateway. Wrong fields raise UsageError."""
        options: dict[str, Any] = {
            "mode": self.mode,
            "limit": self.limit,
            "explain": True,
            "filters": {
                "kinds": [self.kind] if self.kind else [],
                "collections": [self.collection] if self.collection else [],
                "uri_prefix": self.under or None,
                "path_globs": self.path.split(),
                "languages": self.lang.split(),
                "symbols": self.symbol.split(),
                "where": self.where.strip() or None,
            },
        }
        if self.like:
            options["like"] = self.like
        else:
            options |= {"text": self.text, "operators": True}
        if self.balance != _BALANCED and self.mode == "hybrid":
            meaning = self.balance / 100
            options["weights"] = Weights(vector=meaning, keyword=round(1 - meaning, 2))
        if self.similarity and self.mode not in {"keyword", "exact"}:
            options["min_similarity"] = self.similarity
        if self.grouped:
            options["group"] = "document"
        if not self.together:
            options["sections"] = True
        if self.diversity:
            options["diversity"] = self.diversity
        if self.context_tokens >= _SMALLEST_CONTEXT:
            options["context_tokens"] = self.context_tokens
        return Question(**options)

    def parameters(self, project: str) -> dict[str, Any]:
        """Parameters of the address, without those at their usual value."""
        usual = {"mode": "hybrid", "balance": _BALANCED, "limit": protocol_limits.USUAL_RESULTS}
        values = {
            "like": self.like,
            "mode": self.mode,
            "kind": self.kind,
            "under": self.under,
            "collection": self.collection,
            "path": self.path,
            "lang": self.lang,
            "symbol": self.symbol,
            "where": self.where,
            "balance": self.balance,
            "limit": self.limit,
            "similarity": self.similarity or None,
            "grouped": "1" if self.grouped else "",
            "together": "1" if self.together else "",
            "diversity": self.diversity or None,
            "context": self.context_tokens or None,
        }
        return {"project": project, "q": self.text} | {
            name: value for name, value in values.items() if value != usual.get(name, "")
        }


@dataclass(frozen=True, slots=True)
class _ScorePart:
    """Row of the explanation. ``share`` is from 0 to 1, of the largest score among the results."""

    name: str
    rank: int | None
    score: str
    share: float


@dataclass(frozen=True, slots=True)
class _Match:
    """An other match of a result: its lines or page, its name, and the address of its lines."""

    place: str
    name: str
    href: str


@dataclass(frozen=True, slots=True)
class Result:
    """One result as the page shows it.

    ``above`` and ``below`` are the lines around a part of a table or of a fence that make it
    readable, such as the head of the table. ``similar``: address of a question for what is like it.
    """

    number: int
    section: str
    chunk_id: int
    uri: str
    place: str
    href: str
    name: str
    kind: str
    title: str
    match: str
    score: str
    above: Sequence[Markup]
    lines: Sequence[Line]
    hidden_lines: int
    below: Sequence[Markup]
    definition: Sequence[Line]
    other_matches: Sequence[_Match]
    score_parts: Sequence[_ScorePart]
    terms: Sequence[tuple[str, float]]
    explanation: str
    permalink: str | None
    similar: str


async def show(visit: Visit) -> Response:
    """Show the form and, if the address has a question, its answer."""
    question = _Question.of(visit)
    values: dict[str, Any] = {
        "question": question,
        "query": question.text,
        "modes": _MODES,
        "verdicts": _VERDICTS,
        "kinds": _KINDS,
        "collections": await visit.remembered("collections", visit.read_collections),
        "answer": None,
        "problem": None,
        "project_row": next((row for row in visit.projects if row.project == visit.project), None),
        "here": lambda **other: address("/ask", **(question.parameters(visit.project) | other)),
    }
    status = 200
    if question.text or question.like:
        try:
            answer = await visit.site.knowledge.ask(visit.caller, visit.project, question.asked())
        except ValidationError as error:
            values["problem"] = Problem.of(UsageError(first_problem(error), "change the filters"))
            status = values["problem"].status
        except HeadraceError as error:
            values["problem"] = Problem.of(error)
            status = values["problem"].status
        else:
            if visit.parameter("format") == "json":
                return JSONResponse(answer.model_dump(mode="json"))
            values |= _answer_values(visit, question, answer)
    return visit.render("ask.html", status, **values)


async def judge(visit: Visit) -> Response:
    """Publish the verdict of a form on one result, and confirm it."""
    fields = {name: visit.sent(name) for name in ("query_id", "chunk_id", "verdict")}
    if fields["verdict"] not in _VERDICTS:
        raise UsageError("the form has no verdict", "go back to the answer")
    try:
        judgement = Judgement.model_validate(fields)
    except ValidationError as error:
        raise UsageError(first_problem(error), "go back to the answer") from None
    await visit.site.knowledge.judge(visit.caller, visit.project, judgement)
    question = visit.sent("question")
    return visit.render(
        "judged.html",
        verdict=_VERDICTS[judgement.verdict],
        question=question if question.startswith("/ask?") else "/ask",
    )


def results_of(answer: QueryAnswer, question: str) -> list[Result]:
    """Results of an answer, each with its number in its section, and its best lines.

    These are the lines that have most marked words.
    """
    largest = {
        "vector": 1.0,
        "keyword": max(
            (s.scores.keyword.score for s in answer.results if s.scores.keyword), default=1
        ),
        "fused": max((s.scores.fused for s in answer.results), default=1),
        "reranked": max((s.scores.reranked or 0 for s in answer.results), default=1),
    }
    return [
        _result(number, result, answer.project, question, largest)
        for _, section in groupby(answer.results, key=attrgetter("section"))
        for number, result in enumerate(section, start=1)
    ]


def _answer_values(visit: Visit, question: _Question, answer: QueryAnswer) -> dict[str, Any]:
    results = results_of(answer, question.text)
    return {
        "answer": answer,
        "sections": [[*section] for _, section in groupby(results, key=attrgetter("section"))],
        "as_of": _as_of(answer),
        "stages": _stages(answer.timings_ms),
        "notes": _notes(answer),
        "searched_chunks": answer.searched_chunks,
        "can_be_judged": not question.like and answer.exact is None,  # workers keep no others
        "commands": _commands(visit, question),
    }


def _result(
    number: int,
    result: SearchResult,
    project: str,
    question: str,
    largest: Mapping[str, float],
) -> Result:
    source = result.citation
    spans, terms, explanation = _explanation(result)
    content = result.content
    spans = spans or word_spans(content, question)
    window = best_window(content, spans, _SHOWN_LINES)
    lines = highlighted(  # up to the window's end: the colours of a line depend on those above it
        "\n".join(content.split("\n")[: window.stop]),
        source.uri,
        "text" if result.kind is Kind.CODE_EXAMPLE else result.kind,
        first=source.start_line,
        spans=spans,
    )
    above, below = ("", "")
    if content:
        above, _, below = (result.rendered or content).rpartition(content)
    others = result.other_matches or ()
    return Result(
        number=number,
        section=result.section or "",
        chunk_id=result.chunk_id,
        uri=source.uri,
        place=source.place,
        href=_lines_address(project, source.uri, source.start_line, source.end_line),
        name=source.symbol or " > ".join(source.heading_path),
        kind=result.kind.value,
        title=result.title or "",
        match=_MATCHES[result.match_type],
        score=f"{result.scores.fused:.3f}",
        above=_around(above),
        lines=lines[window.start :],
        hidden_lines=content.count("\n") + 1 - len(window),
        below=_around(below),
        definition=_definition(result, source.start_line + window.start),
        other_matches=[_other_match(match, project, source.uri) for match in others],
        score_parts=_score_parts(result, largest),
        terms=terms,
        explanation=explanation,
        permalink=outside_link(source.permalink),
        similar=_similar_address(project, result),
    )


def _similar_address(project: str, result: SearchResult) -> str:
    """Address of a question for what is like a result; an example is like other examples."""
    if result.kind is Kind.CODE_EXAMPLE:
        return address("/ask", project=project, like=result.chunk_id, kind=result.kind.value)
    place = f"{result.citation.uri}:{result.citation.start_line}"
    return address("/ask", project=project, like=place)


def _around(text: str) -> list[Markup]:
    return [line.html for line in highlighted(text.strip("\n"), "", "text")] if text else []


def _lines_address(project: str, uri: str, first: int, last: int) -> str:
    return address("/document", project=project, uri=uri, lines=f"{first}-{last}") + f"#L{first}"


def _definition(result: SearchResult, first_shown: int) -> list[Line]:
    """Lines of the definition that the shown lines are within, unless these have it."""
    source = result.citation
    parts = [(lines.start_line, lines.text) for lines in result.definition or ()]
    names = symbols_of(source.symbol)
    if not parts and result.kind is Kind.CODE and len(names) == 1:
        signature = signature_of(result.content, names[0], source.start_line)
        if signature is not None and signature.line < first_shown:
            parts = [signature]
    return [
        line for first, text in parts for line in highlighted(text, source.uri, "code", first=first)
    ]


def _other_match(match: OtherMatch, project: str, uri: str) -> _Match:
    href = _lines_address(project, uri, match.start_line, match.end_line)
    return _Match(match.place, match.name, href)


def _explanation(
    result: SearchResult,
) -> tuple[list[tuple[int, int]], list[tuple[str, float]], str]:
    """Marked ranges, matched terms with weights, and the text, as far as the worker sent them."""
    matches = result.matches or ()
    spans = [(span.start, span.end) for match in matches for span in match.spans]
    terms = [(match.term.removeprefix(EXACT), match.weight) for match in matches]
    return spans, terms, result.explanation or ""


def _score_parts(result: SearchResult, largest: Mapping[str, float]) -> list[_ScorePart]:
    scores = result.scores
    score_parts = []
    if scores.vector is not None:
        value = scores.vector.score
        score_parts.append(
            _score_part("meaning", scores.vector.rank, value, f"{value:.3f} cosine", 1.0)
        )
    if scores.keyword is not None:
        value = scores.keyword.score
        score_parts.append(
            _score_part(
                "words", scores.keyword.rank, value, f"{value:.2f} BM25", largest["keyword"]
            )
        )
    score_parts.append(
        _score_part("together", None, scores.fused, f"{scores.fused:.3f}", largest["fused"])
    )
    if scores.reranked is not None:
        value = scores.reranked
        score_parts.append(
            _score_part("reranked", None, value, f"{value:.3f}", largest["reranked"])
        )
    return score_parts


def _score_part(
    name: str, rank: int | None, value: float, score: str, largest: float
) -> _ScorePart:
    return _ScorePart(
        name, rank, score, max(0.0, min(1.0, value / largest)) if largest > 0 else 0.0
    )


def _as_of(answer: QueryAnswer) -> str:
    """Time of the newest change that the answer reflects, in UTC; '' if there is none."""
    times = [int(entry.split("-")[0]) for entry in answer.watermark.values()]
    newest = max(times, default=0)
    return f"{instant_of(newest).astimezone(UTC):%H:%M:%S} UTC" if newest else ""


def _stages(timings_ms: Mapping[str, float]) -> list[dict[str, Any]]:
    """Stages with their time, start and width in percent, for a bar."""
    total = sum(timings_ms.values())
    stages, start = [], 0.0
    for name, milliseconds in timings_ms.items():
        width = 100 * milliseconds / total if total else 0.0
        stages.append({"name": name, "ms": milliseconds, "start": start, "width": width})
        start += width
    return stages


def _notes(answer: QueryAnswer) -> list[str]:
    notes = [
        f"“{word}” is not in the index; “{used}” was searched instead"
        for word, used in answer.corrections.items()
    ]
    if answer.stale:
        notes.append("Stale: the change that you waited for is not searchable yet")
    if answer.coverage < 1:
        notes.append(
            f"{answer.coverage:.0%} of the chunks have vectors; the others are found by words only"
        )
    if answer.exact is not None:
        notes.append(
            f"{_counted(answer.exact.matches, 'match', 'matches')} in "
            f"{_counted(answer.exact.files, 'document', 'documents')}"
            + (f", up to {answer.exact.searched_to}" * answer.exact.truncated)
        )
    retrievers = [name for name in answer.degraded if name != "rerank"]
    failed = [name for name in retrievers if name != "vector" or answer.coverage == 1]
    if failed:
        notes.append(f"Degraded: could not search {', '.join(failed)}")
    if "rerank" in answer.degraded:
        notes.append("Degraded: the reranker failed or was late; the order is that of the search")
    if answer.weak:
        notes.append("Weak: nothing in this project seems to answer this")
    return notes


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _commands(visit: Visit, question: _Question) -> dict[str, str]:
    """The same question for other programs."""
    body: dict[str, Any] = {"like": question.like} if question.like else {"text": question.text}
    asked = ["--like", question.like] if question.like else [question.text]
    words = ["headrace", "ask", *asked, "--project", visit.project]
    python = [repr(visit.project)]
    python.append(f"like={question.like!r}" if question.like else repr(question.text))
    if question.mode != "hybrid":
        body["mode"] = question.mode
        words += ["--mode", question.mode]
        python.append(f"mode={question.mode!r}")
    if question.limit != protocol_limits.USUAL_RESULTS:
        body["limit"] = question.limit
        words += ["--limit", str(question.limit)]
        python.append(f"limit={question.limit}")
    if question.grouped:
        body["group"] = "document"
        python.append("group='document'")
    else:
        words += ["--group", "chunk"]
    if question.together:
        words += ["--no-sections"]
    else:
        body["sections"] = True
        python.append("sections=True")
    base = str(visit.request.base_url).rstrip("/")
    curl = [
        "curl",
        "-sS",
        f"{base}/v1/projects/{visit.project}/ask",
        "-H",
        "Authorization: Bearer $HEADRACE_API_KEY",
        "--json",
        json.dumps(body, ensure_ascii=False),
    ]
    quoted = [f'"{word}"' if "$HEADRACE_API_KEY" in word else shlex.quote(word) for word in curl]
    return {
        "Shell": shlex.join(words),
        "curl": " ".join(quoted),
        "Python": f"answer = await client.ask({', '.join(python)})",
    }

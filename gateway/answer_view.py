"""Answers printed for people: citation, explanation and the best lines of each result."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from content.signatures import signature_of, symbols_of
from events.models import Kind, QueryAnswer, SearchResult
from gateway.output import on_one_line, printable

__all__ = ["explanation", "print_answer", "print_results"]

_SNIPPET_LINES = 12
_LIGHT = frozenset({"7", "15"})
_WORD = re.compile(r"\w{3,}")


def print_answer(
    console: Console, answer: QueryAnswer, question: str, *, explain: bool = False
) -> None:
    """Print results, best first, and notes about missing vectors, failed retrievers and staleness.

    With ``explain``, also print scores, the generation that answered, and the time of each stage.
    """
    print_results(console, answer.results, question, explain=explain)
    if answer.context is not None:
        console.print(Text("context", style="bold"))
        console.print(Text(printable(answer.context)))
    for line in _notes(answer, explain=explain):
        console.print(Text(line, style="dim"))


def print_results(
    console: Console, results: Sequence[SearchResult], question: str, *, explain: bool = False
) -> None:
    """Print results, best first, each with the lines that share most words with the question.

    Two sections have a heading each, and numbers of their own. With ``explain``, also print which
    retrievers returned each result, with their scores.
    """
    sections = [[*group] for _, group in groupby(results, key=attrgetter("section"))]
    for section in sections:
        if len(sections) > 1:
            console.print(Text(f"{section[0].section}\n", style="bold"))
        for number, result in enumerate(section, start=1):
            head = _head(number, result, explain=explain)
            lines = _best_lines(result, question, colour=console.is_terminal)
            console.print(Group(*head, *lines, *_other_matches(result), Text()))


def explanation(result: SearchResult) -> str:
    """Retrievers that returned a result, each with its rank and score."""
    scores = result.scores
    parts = [f"{result.match_type} match", f"score {scores.fused:.3f}"]
    if scores.vector is not None:
        parts.append(f"meaning #{scores.vector.rank} (cosine {scores.vector.score:.3f})")
    if scores.keyword is not None:
        parts.append(f"words #{scores.keyword.rank} (BM25 {scores.keyword.score:.2f})")
    if scores.reranked is not None:
        parts.append(f"reranked {scores.reranked:.3f}")
    return " · ".join(parts)


def _head(number: int, result: SearchResult, *, explain: bool) -> list[RenderableType]:
    source = result.citation
    head = Text.assemble(f"{number}. ", (on_one_line(source.place), "bold cyan"))
    name = source.symbol or " > ".join(source.heading_path) or result.title
    if name:
        head.append(f"  {on_one_line(name)}", style="bold")
    parts: list[RenderableType] = [head]
    if explain:
        parts.append(Text(f"   {explanation(result)}", style="dim"))
    if result.explanation:
        parts.append(Text(f"   {result.explanation}", style="dim"))
    if source.permalink:
        parts.append(Text(f"   {on_one_line(source.permalink)}", style="dim"))
    return parts


def _best_lines(result: SearchResult, question: str, *, colour: bool) -> list[RenderableType]:
    """The lines that share most words with the question, below the definition they are within."""
    first, lines = _window(result.content, question)
    lexer = result.language or Syntax.guess_lexer(result.citation.uri)
    start = result.citation.start_line + first
    above = [
        (lines.start_line, printable(lines.text).split("\n")) for lines in result.definition or ()
    ]
    names = symbols_of(result.citation.symbol)
    if not above and first and result.kind is Kind.CODE and len(names) == 1:
        signature = signature_of(result.content, names[0], result.citation.start_line)
        if signature is not None and signature.line < start:
            above = [(signature.line, printable(signature.text).split("\n"))]
    parts = [_snippet(lexer, line, [*texts], colour=colour) for line, texts in above]
    if above and above[-1][0] + len(above[-1][1]) < start:
        parts.append(Text(f"{'…':>7}", style="dim"))
    return [*parts, _snippet(lexer, start, lines, colour=colour)]


def _other_matches(result: SearchResult) -> Iterator[RenderableType]:
    """One line for each other match, with its place and name.

    Chunks of one long line have the same place: it is printed once, and not if it is cited above.
    """
    cited = result.citation
    place = f"{cited.start_line}-{cited.end_line}" if cited.page is None else f"page {cited.page}"
    printed = {(place, cited.symbol or " > ".join(cited.heading_path))}
    for match in result.other_matches or ():
        if (match.place, match.name) not in printed:
            printed.add((match.place, match.name))
            yield Text(f"   also {match.place}  {on_one_line(match.name)}".rstrip(), style="dim")


def _window(content: str, question: str) -> tuple[int, list[str]]:
    """Index of the first of the lines that share most words with the question, and the lines."""
    # chunks of an earlier version may still have these line ends
    lines = printable(content.replace("\r\n", "\n").removesuffix("\r")).split("\n")
    words = {word.lower() for word in _WORD.findall(question)}
    hits = [len(words & {word.lower() for word in _WORD.findall(line)}) for line in lines]
    starts = range(max(1, len(lines) - _SNIPPET_LINES + 1))
    best = max(starts, key=lambda start: (sum(hits[start : start + _SNIPPET_LINES]), -start))
    return best, lines[best : best + _SNIPPET_LINES]


def _snippet(lexer: str, start: int, lines: list[str], *, colour: bool) -> RenderableType:
    if not colour:
        numbered = (f"{number:>7}  {line}" for number, line in enumerate(lines, start=start))
        return Text("\n".join(numbered))
    syntax = Syntax(
        "\n".join(lines),
        lexer,
        line_numbers=True,
        start_line=start,
        theme=_theme(os.environ.get("COLORFGBG", "")),
        background_color="default",
    )
    return Padding(syntax, (0, 0, 0, 3))


def _theme(colours: str) -> str:
    """Theme for the terminal's background, which ``colours`` holds as ``<text>;<background>``.

    Both themes print plain text in the terminal's own colour, so it is readable on any background.
    """
    return "ansi_light" if colours.rpartition(";")[2] in _LIGHT else "ansi_dark"


def _notes(answer: QueryAnswer, *, explain: bool) -> Iterator[str]:
    if answer.weak:
        yield f"weak: nothing in project {answer.project} seems to answer this"
    elif not answer.results:
        yield f"no results in project {answer.project}"
    for word, used in answer.corrections.items():
        yield f"{word!r} is not in the index; searched {used!r}"
    if answer.coverage < 1:
        yield (
            f"{answer.coverage:.0%} of the chunks searched have vectors; "
            "the others are found by keyword only"
        )
    retrievers = [name for name in answer.degraded if name != "rerank"]
    failed = [name for name in retrievers if name != "vector" or answer.coverage == 1]
    if failed:
        yield f"degraded: could not search {', '.join(failed)}"
    if "rerank" in answer.degraded:
        yield "degraded: the reranker failed or was late; the order is that of the search"
    if answer.stale:
        yield f"stale: the index has only reached {_pairs(answer.watermark)}"
    if explain:
        count = len(answer.results)
        summary = f"{count} result{'s' * (count != 1)} of generation {answer.generation}"
        yield f"{summary}; ms: {_pairs(answer.timings_ms)}"


def _pairs(values: dict[str, float] | dict[str, str]) -> str:
    return ", ".join(
        f"{name} {value:.1f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )

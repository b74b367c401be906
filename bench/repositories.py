"""Questions of a newcomer, and names alone, over four code bases that come from packages.

``repositories.json`` names the sources, with the commands that fetch them, and holds questions with
the passages that answer them. A passage is given as a uri and a text that it contains. Ranking may
be tuned by the ``questions``; the ``held_out`` ones show if a rule holds. The names are drawn with
a fixed seed from the definitions in the sources, tests and examples left out: a name that several
classes define is asked for with its class. Files are published without titles, as ``sync``
publishes them.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

from bench.evaluation import MODES
from bench.figures import Report, Row
from bench.stack import bench_stack
from content.detection import kind_of
from content.signatures import symbols_of
from events.client.client import Client
from events.models import DocumentChange, DocumentRejected, Kind, SearchResult
from events.names import Lane
from processors.answering.sections import section_of
from runtime.errors import UsageError

__all__ = [
    "NamedDefinition",
    "definitions_in",
    "firsts_of_sections",
    "has_repeats",
    "measure",
    "names_of",
    "row_of",
]

NAMES = 30
"""Names that are asked for in each repository of ``_NAMED``."""

_QUESTIONS_GOAL = 0.9
_NAMES_GOAL = 0.95
_SHOWN_BY_ASK = 5
_SHOWN = 20
"""Results among which the right one is looked for."""

_PATIENCE = timedelta(minutes=10)
_NAMED = ("flask", "httpx", "cobra")
_SEED = 5
_SHORTEST_NAME = 4
_LARGEST_BYTES = 200_000
_SUFFIXES = frozenset(
    (".cfg", ".css", ".go", ".html", ".js", ".md", ".py", ".rst", ".sql", ".toml", ".txt", ".yml")
)
_LEFT_OUT = ("test", "example", "docs/")
_WORD = re.compile(r"\w+")
_GO = re.compile(r"(?:func (?:\(\w+ \*?(?P<owner>\w+)\) )?(?P<func>\w+)\(|type (?P<type>\w+) )")


@dataclass(frozen=True, slots=True)
class NamedDefinition:
    """A definition in a file: the class around it (or ''), its name, and its first line."""

    owner: str
    name: str
    line: int


async def measure(directories: Sequence[Path]) -> Report:
    """Index the repositories under a directory, and count the right answers at rank 1.

    Raises:
        UsageError: not exactly one directory is given, or a repository is not in it.
    """
    if len(directories) != 1:
        raise UsageError("bench repositories needs one directory", "name that of the sources")
    data = json.loads(Path(__file__).with_name("repositories.json").read_text("utf-8"))
    figures: defaultdict[str, list[bool]] = defaultdict(list)
    rows: list[Row] = []
    async with (
        bench_stack() as stack,
        stack.worker(),
        Client.connect(stack.redis_url) as client,
    ):
        for project, repository in data["repositories"].items():
            files = dict(_files(project, directories[0], repository, data["modules"]))
            await _index(client, project, files)
            for group in ("questions", "held_out"):
                for item in data[group]:
                    if item["repository"] == project:
                        results = await _asked(client, project, item)
                        row = row_of(item, results)
                        rows.append(row)
                        figures[group].append(bool(row.met))
                        figures[f"{group}_files"].append(_is_in_file(results[0], item["answers"]))
                        divided = await _divided(client, project, item)
                        figures["without_repeats"].append(not has_repeats(divided))
                        parts = firsts_of_sections(item["answers"], files, divided)
                        figures[f"{group}_in_section"].append(
                            any(_is_right(result, item["answers"]) for result in parts)
                        )
                        figures[f"{group}_files_in_section"].append(
                            any(_is_in_file(result, item["answers"]) for result in parts)
                        )
                        figures["without_repeats"].append(not has_repeats(results))
            for name, places in names_of(files) if project in _NAMED else ():
                for mode in MODES:
                    answer = await client.ask(project, name, limit=1, mode=mode)
                    right = any(_is_at(result, places) for result in answer.results)
                    figures[f"names_{mode}"].append(right)
    rows += [_total(name, right) for name, right in figures.items()]
    return Report("repositories", {name: sum(right) for name, right in figures.items()}, rows)


async def _asked(client: Client, project: str, item: Mapping[str, Any]) -> Sequence[SearchResult]:
    answer = await client.ask(project, item["question"], limit=_SHOWN, explain=True)
    return answer.results


async def _divided(client: Client, project: str, item: Mapping[str, Any]) -> Sequence[SearchResult]:
    """Ask as ``headrace ask`` and agents do."""
    answer = await client.ask(
        project, item["question"], limit=_SHOWN_BY_ASK, group="document", sections=True
    )
    return answer.results


def firsts_of_sections(
    answers: Sequence[str], files: Mapping[str, str], results: Sequence[SearchResult]
) -> list[SearchResult]:
    """Return the first result of each section that has an expected answer."""
    uris = (answer.partition("|")[0] for answer in answers)
    expected = {section_of(kind_of(uri, None, files.get(uri, ""))) for uri in uris}
    firsts = {result.section: result for result in reversed(results)}
    return [result for section, result in firsts.items() if section in expected]


def row_of(item: Mapping[str, Any], results: Sequence[SearchResult]) -> Row:
    """Return a row with the first of a question's results, and the best right one with its rank.

    It is met if the first result is right.
    """
    ranks = [
        rank for rank, result in enumerate(results, start=1) if _is_right(result, item["answers"])
    ]
    if not ranks:
        expected = f"{item['answers'][0]}: not in the results"
    elif ranks[0] == 1:
        expected = "1"
    else:
        expected = f"{ranks[0]}: {_described(results[ranks[0] - 1])}"
    what = f"{item['repository']}: {item['question']}"
    return Row(what, _described(results[0]), expected, ranks[:1] == [1])


def has_repeats(results: Sequence[SearchResult]) -> bool:
    """Return whether two results are passages of one function or class, by its name."""
    units = [
        (result.citation.uri, name)
        for result in results
        if result.kind is Kind.CODE
        for name in symbols_of(result.citation.symbol)
    ]
    return len(units) > len(set(units))


def _described(result: SearchResult) -> str:
    return f"{result.citation.place}; {result.explanation}"


def _total(name: str, right: Sequence[bool]) -> Row:
    goals = {"names": _NAMES_GOAL, "without": 1.0}
    share = goals.get(name.partition("_")[0], _QUESTIONS_GOAL)
    goal = ceil(share * len(right))
    return Row(name, f"{sum(right)} of {len(right)}", f"≥ {goal}", sum(right) >= goal)


def _files(
    project: str, directory: Path, repository: Mapping[str, Any], modules: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield uri and text of each file."""
    is_library = not repository["folder"]
    root = Path(sysconfig.get_paths()["stdlib"]) if is_library else directory / repository["folder"]
    if not root.is_dir():
        raise UsageError(
            f"{root} is missing: the sources of {project}",
            f"unpack {repository['source']} in {directory}: {repository['fetch']}",
        )
    for path in sorted(root.rglob("*")):
        uri = path.relative_to(root).as_posix()
        if is_library and uri.partition("/")[0].removesuffix(".py") not in modules:
            continue
        if path.suffix in _SUFFIXES and path.is_file() and path.stat().st_size < _LARGEST_BYTES:
            text = path.read_text("utf-8", "replace")
            if text.strip():
                yield uri, text


async def _index(client: Client, project: str, files: Mapping[str, str]) -> None:
    changes = [
        DocumentChange(project=project, uri=uri, content=text) for uri, text in files.items()
    ]
    receipts = await client.publish_many(changes, lane=Lane.BULK)
    async for outcome in client.outcomes(receipts, _PATIENCE, vectors=True):
        if isinstance(outcome, DocumentRejected):
            raise UsageError(f"{outcome.data.uri} was rejected: {outcome.data.problem.detail}")


def names_of(files: Mapping[str, str]) -> Sequence[tuple[str, Sequence[tuple[str, int]]]]:
    """Return names that mean one definition each, with its places: uris and lines."""
    places: defaultdict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for uri, text in files.items():
        if any(part in uri for part in _LEFT_OUT):
            continue
        for definition in definitions_in(uri, text):
            if len(definition.name) >= _SHORTEST_NAME and not definition.name.startswith("__"):
                places[definition.owner, definition.name].append((uri, definition.line))
                owners[definition.name].add(definition.owner)
    names = [
        (name if len(owners[name]) == 1 else f"{owner}.{name}", where)
        for (owner, name), where in sorted(places.items())
        if owner or len(owners[name]) == 1
    ]
    random.Random(_SEED).shuffle(names)
    return names[:NAMES]


def definitions_in(uri: str, text: str) -> Iterator[NamedDefinition]:
    """Yield the functions, classes and methods of a file of Python or Go."""
    if uri.endswith(".py"):
        yield from _in_python(ast.parse(text), "")
    elif uri.endswith(".go"):
        for number, line in enumerate(text.split("\n"), 1):
            match = _GO.match(line)
            if match:
                name = match["func"] or match["type"]
                yield NamedDefinition(match["owner"] or "", name, number)


def _in_python(node: ast.Module | ast.ClassDef, owner: str) -> Iterator[NamedDefinition]:
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield NamedDefinition(owner, child.name, child.lineno)
        if isinstance(child, ast.ClassDef):
            yield from _in_python(child, child.name)


def _is_right(result: SearchResult, answers: Sequence[str]) -> bool:
    """Return whether a result is in an expected file, and shows the text or a part of its unit."""
    units = {name.rpartition(".")[2] for name in (result.citation.symbol or "").split(", ")}
    for uri, text in (answer.split("|", 1) for answer in answers):
        names = _WORD.findall(text)[-1:]
        if result.citation.uri == uri and (text in result.content or not units.isdisjoint(names)):
            return True
    return False


def _is_in_file(result: SearchResult, answers: Sequence[str]) -> bool:
    return result.citation.uri in {expected.partition("|")[0] for expected in answers}


def _is_at(result: SearchResult, places: Sequence[tuple[str, int]]) -> bool:
    citation = result.citation
    return any(
        citation.uri == uri and citation.start_line <= line <= citation.end_line
        for uri, line in places
    )

"""Hostile files that the bench makes."""

from __future__ import annotations

from bench.content.hostile.files import bombs, hostile_files, mutants
from bench.content.hostile.originals import originals
from bench.content.parsers import fates


def test_whole_documents_are_indexed() -> None:
    """Mutations of a document say something only if the document itself is read."""
    names = {suffix: f"openapi.{suffix}" for suffix in originals()}
    results = fates((names[suffix], raw) for suffix, raw in originals().items())
    assert [fate.name for fate in results if fate.outcome != "indexed"] == []
    kinds = {fate.kind for fate in results}
    assert {"pdf", "word", "slides", "sheet", "book", "conversation", "email"} <= kinds
    assert {"html", "notebook", "openapi", "markdown", "rst", "code"} <= kinds


def test_every_format_has_hostile_files() -> None:
    names = bombs().keys()
    suffixes = {name.rpartition(".")[2] for name in names}
    assert set(originals()) <= suffixes | {"rst"}
    assert len(names) > 300


def test_a_seed_makes_the_same_files_again() -> None:
    first, other = mutants(1), mutants(2)
    assert not first.keys() & other.keys()
    assert set(first.values()) != set(other.values())
    again = dict(hostile_files(1))
    assert first.items() <= again.items()
    assert len(again) - len(first) > 300

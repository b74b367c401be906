"""Hostile files that the bench makes."""

from __future__ import annotations

from bench.content.hostile.files import hostile_files, mutants
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


def test_a_seed_makes_the_same_files_again_beside_bombs_of_every_format() -> None:
    first, other = mutants(1), mutants(2)
    assert not first.keys() & other.keys()
    assert set(first.values()) != set(other.values())
    again = hostile_files(1)
    assert first.items() <= again.items()
    bombs = again.keys() - first.keys()
    assert len(bombs) > 300
    assert set(originals()) <= {name.rpartition(".")[2] for name in bombs} | {"rst"}

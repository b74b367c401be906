"""The benchmark of recall, on a small index."""

from __future__ import annotations

from bench.recall import measure


async def test_few_of_many_chunks_are_compared_exactly() -> None:
    """A thousandth of the chunks, as a project or by a filter, has all of its nearest chunks."""
    report = await measure(12_000, 10)
    recalls = {
        name: float(value) for name, value in report.figures.items() if name.endswith("recall")
    }
    exact = {"project_recall", "team_recall", "indexed_team_recall"}
    assert recalls.keys() == exact | {"half_recall", "all_recall"}
    assert {recalls[name] for name in exact} == {1.0}

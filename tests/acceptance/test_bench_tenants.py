"""The benchmark of small tenants, on a small index."""

from __future__ import annotations

from bench.tenants import measure


async def test_few_of_many_chunks_are_compared_exactly() -> None:
    """A thousandth of the chunks, as a project or by a filter, has all of its nearest chunks."""
    report = await measure(chunks=12_000, questions=10)
    recalls = {name: value for name, value in report.figures.items() if name.endswith("recall")}
    assert set(recalls) == {"project_recall", "team_recall", "half_recall", "all_recall"}
    assert recalls["project_recall"] == recalls["team_recall"] == 1.0

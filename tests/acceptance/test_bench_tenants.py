"""The benchmark of many tenants, on a small index."""

from __future__ import annotations

from bench.tenants import measure


async def test_few_of_many_chunks_are_compared_exactly() -> None:
    """A thousandth of the chunks, as a project or by a filter, has all of its nearest chunks."""
    report = await measure(12_000, 10, idle_projects=20, idle_seconds=0.5, changes=40, indexes=60)
    recalls = {name: value for name, value in report.figures.items() if name.endswith("recall")}
    assert set(recalls) == {"project_recall", "team_recall", "half_recall", "all_recall"}
    assert recalls["project_recall"] == recalls["team_recall"] == 1.0
    expected = {"spread_ratio", "idle_edit_ms", "idle_fold_ms"}
    assert all(float(report.figures[name]) > 0 for name in expected)
    assert float(report.figures["idle_cpu_percent"]) < 100
    assert float(report.figures["plan_ms"]) > 0
    assert (report.figures["transactions"], report.figures["failed_transactions"]) == (50, 0)

"""The benchmark of many tenants, with few of them."""

from __future__ import annotations

from bench.tenants import measure


async def test_many_projects_are_measured() -> None:
    """Every figure is there, and no transaction fails."""
    report = await measure(idle_projects=20, idle_seconds=0.5, changes=40, indexes=60)
    expected = {"spread_ratio", "idle_edit_ms", "idle_fold_ms"}
    assert all(float(report.figures[name]) > 0 for name in expected)
    assert float(report.figures["idle_cpu_percent"]) < 100
    assert float(report.figures["plan_ms"]) > 0
    assert (report.figures["transactions"], report.figures["failed_transactions"]) == (50, 0)

"""Rules and dashboard name metrics and labels that exist."""

from __future__ import annotations

import re

import pytest

from runtime.instruments import Histogram
from runtime.metrics import declared
from tests.support.forking import ROOT
from tests.support.observability import FOLDER, Selector, alerts, panels, selectors_of

METRICS = declared()
EXPRESSIONS = [
    *((alert.name, alert.expression) for alert in alerts()),
    *((panel.title, expression) for panel in panels() for expression in panel.expressions),
]
OF_THE_DESIGN = (
    *("Down", "NoIndexer", "NoAnswerer", "FallingBehind", "Freshness", "DeadLetters"),
    *("LogNearlyFull", "LogFull", "ModelDown", "AnswersDegraded", "AnswersStale", "AnswersSlow"),
    *("NotArchived", "LoopHeldUp", "MixedVersions", "GatewayErrors", "Spend"),
)
ROWS = [
    *("Freshness", "Throughput", "Streams", "Questions", "Models and cost", "Workers", "Gateway"),
]


def refusal(selector: Selector) -> str:
    """Reason why a series can't exist; empty if it can."""
    name, _, suffix = selector.name.rpartition("_")
    if selector.name in METRICS:
        metric = METRICS[selector.name][1]
        if isinstance(metric, Histogram):
            return f"{selector.name} is a histogram"
        unknown = selector.labels - set(metric.labels)
    elif name in METRICS and suffix in {"bucket", "sum", "count"}:
        metric = METRICS[name][1]
        if not isinstance(metric, Histogram):
            return f"{name} is not a histogram"
        unknown = selector.labels - set(metric.labels) - ({"le"} if suffix == "bucket" else set())
    else:
        return f"{selector.name} is not declared"
    return f"{selector.name} lacks the labels {sorted(unknown)}" if unknown else ""


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_every_expression_names_declared_metrics_and_labels(title: str, expression: str) -> None:
    selectors = selectors_of(expression)
    assert selectors, title
    assert [refusal(selector) for selector in selectors if refusal(selector)] == []


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("sum(headrace_change_total)", "is not declared"),
        ("sum by (project) (headrace_changes_total)", "lacks the labels ['project']"),
        ('headrace_questions_total{mod="hybrid"}', "lacks the labels ['mod']"),
        ("rate(headrace_freshness_seconds[5m])", "is a histogram"),
        ("rate(headrace_changes_total_bucket[5m])", "is not a histogram"),
    ],
)
def test_a_wrong_name_is_noticed(expression: str, reason: str) -> None:
    [selector] = selectors_of(expression)
    assert reason in refusal(selector)


def test_an_expression_that_is_not_promql_is_noticed() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        selectors_of("sum(rate(headrace_changes_total[5m])")


def test_buckets_in_expressions_are_declared() -> None:
    """A bound that no bucket has selects nothing."""
    bounds = {
        (name, float(bound))
        for _, expression in EXPRESSIONS
        for name, bound in re.findall(r'(headrace_\w+)_bucket{[^}]*le="([\d.]+)"', expression)
    }
    assert bounds
    for name, bound in bounds:
        metric = METRICS[name][1]
        assert isinstance(metric, Histogram)
        assert bound in metric.buckets


def test_every_alert_of_the_design_leads_to_its_row_of_the_runbook() -> None:
    assert {alert.name for alert in alerts()} == {f"Headrace{name}" for name in OF_THE_DESIGN}
    for alert in alerts():
        path, _, anchor = alert.runbook.partition("#")
        [row] = [
            line for line in (ROOT / path).read_text().splitlines() if f'id="{anchor}"' in line
        ]
        assert f"`{alert.name}`" in row
        assert alert.summary.endswith(".")


def test_the_dashboard_has_its_rows_and_every_counted_metric() -> None:
    """A metric that no panel shows is listed here with the reason."""
    assert list(dict.fromkeys(panel.row for panel in panels())) == ROWS
    shown = {
        selector.name for _, expression in EXPRESSIONS for selector in selectors_of(expression)
    }
    not_shown = {
        name
        for name in METRICS
        if not shown & {name, f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    }
    assert not_shown == {
        "headrace_changes_not_archived_total",  # a log line names each
        "headrace_changes_trimmed_total",  # housekeeping
        "headrace_expired_total",  # housekeeping
        "headrace_messages_bridged_total",  # only deployments with Kafka have it
        "headrace_model_circuits_opened_total",  # the state is shown
        "headrace_model_requests_waiting",  # the wait is shown
        "headrace_question_waits_refused_total",  # they are among the stale answers
        "headrace_reranks_total",  # those that failed are among the degraded answers
    }


def test_the_compose_file_mounts_files_that_exist() -> None:
    text = (FOLDER / "compose.observability.yml").read_text()
    mounted = re.findall(r"- \./([\w/.]+):", text)
    assert len(mounted) == 2
    assert all((ROOT / path).is_file() for path in mounted)

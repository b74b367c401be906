"""Rules and dashboard for Prometheus, their expressions, and the series that these name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import promql_parser

from tests.support.forking import ROOT

__all__ = ["FOLDER", "Alert", "Panel", "Selector", "alerts", "panels", "selectors_of"]

FOLDER = ROOT / "docs" / "operations" / "observability"
_yaml: Any = import_module("yaml")  # it has no types


@dataclass(frozen=True)
class Alert:
    """A rule; ``runbook`` is the path and the anchor of its row."""

    name: str
    expression: str
    runbook: str
    summary: str


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard, with the row above it."""

    row: str
    title: str
    expressions: tuple[str, ...]


@dataclass(frozen=True)
class Selector:
    """A series that an expression selects, with the labels that it matches or groups by."""

    name: str
    labels: frozenset[str]


def alerts() -> list[Alert]:
    """Return every rule."""
    file = _yaml.safe_load((FOLDER / "alerts.yml").read_text())
    return [
        Alert(
            rule["alert"],
            rule["expr"],
            rule["annotations"]["runbook_url"],
            rule["annotations"]["summary"],
        )
        for group in file["groups"]
        for rule in group["rules"]
    ]


def panels() -> list[Panel]:
    """Return every panel of the dashboard."""
    found: list[Panel] = []
    row = ""
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            expressions = tuple(
                re.sub(r"\$__rate_interval", "1m", target["expr"]) for target in panel["targets"]
            )
            found.append(Panel(row, panel["title"], expressions))
    return found


def selectors_of(expression: str) -> list[Selector]:
    """Parse an expression, and return the series that it selects.

    The labels that an aggregation groups by are added to those of each series below it.

    Raises:
        ValueError: the expression is not PromQL.
    """
    return list(_selectors(promql_parser.parse(expression), frozenset()))


def _selectors(expression: Any, grouped: frozenset[str]) -> Iterator[Selector]:
    match expression:
        case promql_parser.VectorSelector():
            labels = {matcher.name for matcher in expression.matchers.matchers}
            yield Selector(expression.name or "", grouped | labels)
        case promql_parser.MatrixSelector():
            yield from _selectors(expression.vector_selector, grouped)
        case promql_parser.AggregateExpr():
            modifier = expression.modifier
            by = frozenset(modifier.labels) if modifier is not None else frozenset()
            yield from _selectors(expression.expr, grouped | by)
        case promql_parser.BinaryExpr():
            yield from _selectors(expression.lhs, grouped)
            yield from _selectors(expression.rhs, grouped)
        case promql_parser.Call():
            for argument in expression.args:
                yield from _selectors(argument, grouped)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            yield from _selectors(expression.expr, grouped)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            pass
        case _:
            raise ValueError(f"unknown expression {type(expression).__name__}")

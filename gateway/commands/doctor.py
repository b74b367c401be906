"""``headrace doctor``: check the environment, compare the index with the log, repair it."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from gateway.diagnosis import Diagnosis, diagnose
from gateway.output import print_json, printable, stdout
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from processors.doctor.doctor import Health
from processors.doctor.findings import Condition, Finding, Severity, State
from runtime.settings import Settings

__all__ = ["command"]

_EXAMPLES = 5
_MARKS = {State.OK: "ok", State.WARNING: "warning", State.PROBLEM: "PROBLEM"}


def command(
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Check this project only.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
    json: JsonOption = False,
) -> None:
    """Check servers, models and storage; compare the index with the log; repair differences.

    Exits 0 if nothing is wrong, 1 if something is wrong or remains after --repair.
    """

    async def main(settings: Settings) -> Diagnosis:
        async with stack(settings, with_worker=False) as running:
            return await diagnose(running, project, repair=repair)

    diagnosis = run_client(main)
    if json:
        print_json(_plain(diagnosis))
    else:
        _print(diagnosis)
    if not diagnosis.is_healthy:
        raise typer.Exit(1)


def _print(diagnosis: Diagnosis) -> None:
    for condition in diagnosis.environment:
        _print_condition(condition)
    if diagnosis.unexamined:
        _say(f"\nthe index was not examined: {diagnosis.unexamined}")
    for health in diagnosis.projects:
        _say("")
        _print_health(health)
    if not diagnosis.projects and not diagnosis.unexamined:
        _say("\nno projects yet: `headrace sync PATH` creates one")


def _print_condition(condition: Condition) -> None:
    _say(f"{_MARKS[condition.state]:>8}  {condition.name:<22} {condition.detail}")
    if condition.remedy:
        _say(f"{'':>10}→ {condition.remedy}")


def _print_health(health: Health) -> None:
    count = f"{health.documents:,} document{'s' * (health.documents != 1)}"
    of = f"{health.project}: generation {health.generation}, {count}"
    _say(f"{of}: {'nothing to repair' if health.is_healthy else 'needs a repair'}")
    remaining = {finding.name for finding in health.remaining}
    for finding in health.findings:
        if finding.name not in remaining:
            _say(f"{'repaired':>8}  {finding.name:<22} {finding.count:,}: {finding.meaning}")
    for finding in health.remaining:
        _print_finding(finding)
    for failure in health.failures:
        _say(f"{'':>10}can't be repaired: {failure}")


def _print_finding(finding: Finding) -> None:
    mark = "PROBLEM" if finding.severity is Severity.PROBLEM else "note"
    more = finding.count - _EXAMPLES
    examples = ", ".join(finding.examples(_EXAMPLES))
    examples += f", and {more:,} more" if more > 0 else ""
    _say(f"{mark:>8}  {finding.name:<22} {finding.count:,}: {finding.meaning}")
    _say(f"{'':>10}{examples}")
    _say(f"{'':>10}→ {finding.remedy}")


def _say(text: str) -> None:
    stdout().print(printable(text), markup=False)


def _plain(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "healthy": diagnosis.is_healthy,
        "environment": [dataclasses.asdict(condition) for condition in diagnosis.environment],
        "unexamined": diagnosis.unexamined or None,
        "projects": [_plain_health(health) for health in diagnosis.projects],
    }


def _plain_health(health: Health) -> dict[str, Any]:
    remaining = {finding.name for finding in health.remaining}
    repaired = [finding for finding in health.findings if finding.name not in remaining]
    return {
        "project": health.project,
        "generation": health.generation,
        "documents": health.documents,
        "digest": health.digest,
        "healthy": health.is_healthy,
        "findings": [_plain_finding(finding) for finding in health.remaining],
        "repaired": [_plain_finding(finding) for finding in repaired],
        "failures": list(health.failures),
    }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "severity": finding.severity.value,
        "count": finding.count,
        "examples": finding.examples(_EXAMPLES),
        "meaning": finding.meaning,
        "remedy": finding.remedy,
    }

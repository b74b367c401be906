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
from processors.doctor.findings import Condition, Drift, Severity, State
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
    if not diagnosis.is_sound:
        raise typer.Exit(1)


def _print(found: Diagnosis) -> None:
    for condition in found.environment:
        _print_condition(condition)
    if found.unexamined:
        _say(f"\nthe index was not examined: {found.unexamined}")
    for health in found.projects:
        _say("")
        _print_health(health)
    if not found.projects and not found.unexamined:
        _say("\nno projects yet: `headrace sync PATH` creates one")


def _print_condition(condition: Condition) -> None:
    _say(f"{_MARKS[condition.state]:>8}  {condition.name:<22} {condition.detail}")
    if condition.remedy:
        _say(f"{'':>10}→ {condition.remedy}")


def _print_health(health: Health) -> None:
    of = f"{health.project}: generation {health.generation}, {health.documents:,} documents"
    _say(f"{of}: {'no drift' if health.is_sound else 'DRIFT'}")
    remaining = {drift.name for drift in health.remaining}
    for drift in health.drifts:
        if drift.name not in remaining:
            _say(f"{'repaired':>8}  {drift.name:<22} {drift.count:,}: {drift.meaning}")
    for drift in health.remaining:
        _print_drift(drift)
    for failure in health.failures:
        _say(f"{'':>10}can't be repaired: {failure}")


def _print_drift(drift: Drift) -> None:
    mark = "DRIFT" if drift.severity is Severity.DRIFT else "note"
    more = drift.count - _EXAMPLES
    examples = ", ".join(drift.examples(_EXAMPLES)) + (f", and {more:,} more" if more > 0 else "")
    _say(f"{mark:>8}  {drift.name:<22} {drift.count:,}: {drift.meaning}")
    _say(f"{'':>10}{examples}")
    _say(f"{'':>10}→ {drift.remedy}")


def _say(text: str) -> None:
    stdout().print(printable(text), markup=False)


def _plain(found: Diagnosis) -> dict[str, Any]:
    return {
        "sound": found.is_sound,
        "environment": [dataclasses.asdict(condition) for condition in found.environment],
        "unexamined": found.unexamined or None,
        "projects": [_plain_health(health) for health in found.projects],
    }


def _plain_health(health: Health) -> dict[str, Any]:
    remaining = {drift.name for drift in health.remaining}
    return {
        "project": health.project,
        "generation": health.generation,
        "documents": health.documents,
        "digest": health.digest,
        "sound": health.is_sound,
        "drifts": [_plain_drift(drift) for drift in health.remaining],
        "mended": [_plain_drift(drift) for drift in health.drifts if drift.name not in remaining],
        "failures": list(health.failures),
    }


def _plain_drift(drift: Drift) -> dict[str, Any]:
    return {
        "name": drift.name,
        "severity": drift.severity.value,
        "count": drift.count,
        "examples": drift.examples(_EXAMPLES),
        "meaning": drift.meaning,
        "remedy": drift.remedy,
    }

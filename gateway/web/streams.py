"""Screens of streams and dead letters: what waits, what failed, and redrive or drop of many."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from events.streams.dead_letters import instant_of
from events.streams.letter_selection import LetterCount
from gateway.operations.letters import Letter
from gateway.web.presentation import address, environment
from gateway.web.visits import Visit
from runtime.errors import UsageError

__all__ = ["apply", "confirm", "show", "show_letter", "show_letters", "show_outcomes"]

_PAGE = 50
_MINUTES = 120
_FILTERS = ("topic", "project_filter", "error")
_ACTIONS = ("redrive", "drop")
_FOLLOWED = 50
_FOLLOWED_CHANGE = re.compile(r"([a-z0-9][a-z0-9._-]{0,62})/([a-z]+:\d+:\d+-\d+)@(\d{1,15})")
_NO_PROJECT = "-"
"""Value of the filter for events whose project can't be read; no project has this name."""


async def show(visit: Visit) -> Response:
    """Show the state of the deployment. The page reads it again every few seconds."""
    status = await visit.operations.status()
    history = await visit.operations.history(minutes=_MINUTES)
    return visit.render(
        "streams.html",
        status=status,
        totals=_totals(status),
        history=history,
        minutes=_MINUTES,
    )


async def show_letters(visit: Visit) -> Response:
    """Show the number of letters by reason, then the letters that the filter selects."""
    names = {name: visit.parameter(name) for name in _FILTERS}
    letters = await visit.operations.dead_letters(
        **_filter(names),
        before=visit.parameter("before") or None,
        limit=_PAGE + 1,
    )
    counts = await visit.operations.dead_letter_counts()
    shown = letters[:_PAGE]
    return visit.render(
        "dead_letters.html",
        counts=counts,
        letters=shown,
        filters=names,
        filtered=any(names.values()),
        total=sum(row.count for row in counts if _selects(names, row)),
        following=address("/dead-letters", project=visit.project, **names, before=shown[-1].id)
        if len(letters) > _PAGE
        else None,
    )


async def show_letter(visit: Visit) -> Response:
    """Show one letter: its event, its reason, and its attempts."""
    letter = await visit.operations.dead_letter(visit.parameter("id"))
    lines = _event_lines(letter)
    return visit.render("dead_letter.html", letter=letter, event_lines=lines)


async def confirm(visit: Visit) -> Response:
    """Show how many letters an action would change, before anything is changed."""
    action = _action(visit)
    ids = visit.form.get("id", ())
    names = _sent(visit)
    if visit.sent("all"):
        counts = await visit.operations.dead_letter_counts()
        count = sum(row.count for row in counts if _selects(names, row))
        ids = ()
    else:
        count = len(ids)
    if not count:
        raise UsageError("no dead letter was chosen", "choose letters in the list")
    return visit.render(
        "dead_letters_confirm.html", action=action, ids=ids, filters=names, number=count
    )


async def apply(visit: Visit) -> Response:
    """Redrive or drop, and show the outcome of each letter.

    The number of a filter must be the one that was shown: letters that came in since are not
    touched unseen.
    """
    action = _action(visit)
    operations = visit.operations
    work = operations.redrive if action == "redrive" else operations.drop
    ids = visit.form.get("id", ())
    if ids:
        outcomes = await work(list(ids))
    else:
        try:
            count = int(visit.sent("count"))
        except ValueError:
            raise UsageError("the form has no number of letters", "go back to the list") from None
        outcomes = await work(filter=_filter(_sent(visit)), count=count)
    followed = [
        f"{row.project}/{row.token}@{row.entry_id.partition('-')[0]}"
        for row in outcomes
        if row.outcome == "redriven" and row.token and row.project
    ]
    return visit.render(
        "dead_letters_done.html",
        action=action,
        outcomes=outcomes,
        changed=sum(row.outcome != "gone" for row in outcomes),
        **await _followed(visit, followed[:_FOLLOWED]),
    )


async def show_outcomes(visit: Visit) -> Response:
    """Show the outcome of redriven changes, from the ledger."""
    names = visit.request.query_params.getlist("change")[:_FOLLOWED]
    return visit.render("dead_letters_outcomes.html", **await _followed(visit, names))


async def _followed(visit: Visit, names: Sequence[str]) -> dict[str, Any]:
    """State of redriven changes, named as ``project/token@milliseconds``.

    An older entry of the ledger is the rejection that was redriven.
    """
    rows = []
    for name in names:
        match = _FOLLOWED_CHANGE.fullmatch(name)
        if match is None:
            raise UsageError(f"{name[:80]!r} names no redriven change", "go back to the list")
        project, token, redriven_ms = match.groups()
        listing = visit.site.knowledge.reading(visit.caller, project)
        change = await listing.change(project, token)
        if change is not None and change.handled_at < instant_of(int(redriven_ms)):
            change = None
        rows.append({"project": project, "token": token, "change": change})
    return {
        "rows": rows,
        "following": any(row["change"] is None for row in rows),
        "address_of_rows": address("/dead-letters/outcomes", project=visit.project, change=names),
    }


def _event_lines(letter: Letter) -> list[dict[str, Any]]:
    """Lines of the event; those with the name of the wrong field are ``wrong``.

    The detail of a malformed event begins with its type and the path of the field.
    """
    parts = letter.detail.split(": ")
    path = parts[1].split(".") if len(parts) > 2 else []
    field = next((name for name in reversed(path) if not name.isdecimal()), "")
    text = environment().filters["pretty"](letter.raw if letter.event is None else letter.event)
    return [
        {"text": line, "wrong": bool(field) and line.lstrip().startswith(f'"{field}":')}
        for line in text.split("\n")
    ]


def _action(visit: Visit) -> str:
    action = visit.sent("action")
    if action not in _ACTIONS:
        raise UsageError("the form names no action", "use the buttons of the page")
    return action


def _sent(visit: Visit) -> dict[str, str]:
    """Filter that a form carries."""
    return {name: visit.sent(name) for name in _FILTERS}


def _filter(names: Mapping[str, str]) -> dict[str, str]:
    """Filter as the operations take it; a field that is '' allows every value."""
    project = names["project_filter"]
    values = {
        "topic": names["topic"] or None,
        "error": names["error"] or None,
        "project": "" if project == _NO_PROJECT else project or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _selects(names: Mapping[str, str], row: LetterCount) -> bool:
    return (
        names["topic"] in ("", row.topic)
        and names["error"] in ("", row.error)
        and names["project_filter"] in ("", row.project or _NO_PROJECT)
    )


def _totals(status: Mapping[str, Any]) -> dict[str, Any]:
    """Sums over all streams. A sum with an unknown part is None."""
    rows = status["streams"]
    lags = [row["lag"] for row in rows]
    ages = [row["oldest_unacknowledged_s"] or 0.0 for row in rows]
    return {
        "lag": None if None in lags else sum(lags),
        "pending": sum(row["pending"] for row in rows),
        "oldest_s": max(ages, default=0.0),
        "dead_letters": sum(row["dead_letters"] for row in rows),
    }

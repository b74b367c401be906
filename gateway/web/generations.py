"""Screen of generations: the list, a replay with its progress, switch, rollback and drop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from events.replays import ReplayState
from gateway.web.visits import Visit
from runtime.errors import UsageError

__all__ = ["change", "replay", "show", "stop"]

_FIELDS = ("model", "chunking", "since", "kind", "collection", "gate")


async def show(visit: Visit) -> Response:
    """List the generations of a project, and the replay that the address names."""
    return await _render(visit)


async def replay(visit: Visit) -> Response:
    """Estimate a replay, or start it."""
    options: dict[str, Any] = {name: visit.sent(name) or None for name in _FIELDS}
    if visit.sent("action") != "start":
        plan = await visit.operations.start_replay(visit.project, **options, dry_run=True)
        if isinstance(plan, ReplayState):  # it takes long, so its progress is shown
            return visit.redirect("/generations", project=visit.project, replay=plan.id)
        return await _render(visit, plan=plan, options=options)
    started = await visit.operations.start_replay(visit.project, **options)
    assert isinstance(started, ReplayState)  # only an estimate returns a plan
    return visit.redirect("/generations", project=visit.project, replay=started.id)


async def stop(visit: Visit) -> Response:
    """Stop a replay; the live index is unchanged."""
    replay_id = visit.sent("replay")
    await visit.operations.stop_replay(replay_id)
    return visit.redirect("/generations", project=visit.project, replay=replay_id)


async def change(visit: Visit) -> Response:
    """Switch, roll back or drop, if the project's name was typed.

    Raises:
        UsageError: the typed name is another one.
    """
    if visit.sent("typed") != visit.project:
        raise UsageError(
            f"the name typed is not {visit.project}", "type the name of the project to confirm"
        )
    action = visit.sent("action")
    if action == "rollback":
        state = await visit.operations.rollback(visit.project)
    elif action in ("switch", "drop") and visit.sent("generation").isdecimal():
        generation = int(visit.sent("generation"))
        work = visit.operations.switch if action == "switch" else visit.operations.drop_generation
        state = await work(visit.project, generation)
    else:
        raise UsageError("the form names no action", "use the buttons of the page")
    return visit.redirect("/generations", project=visit.project, replay=state.id)


def _plan_of(state: ReplayState | None) -> Mapping[str, Any] | None:
    """Estimate that a state has as its result. Returns None if it has none."""
    if state is None or state.operation != "plan" or not state.result:
        return None
    plan: Mapping[str, Any] = state.result.get("projects", [state.result])[0]
    return plan


def _text(options: Mapping[str, Any]) -> dict[str, str]:
    """Options of a replay for the fields of the form."""
    return {name: str(options[name]) for name in _FIELDS if options.get(name) is not None}


async def _render(visit: Visit, **values: Any) -> Response:
    rows = await visit.operations.generations(visit.project)
    replay_id = visit.parameter("replay")
    states = [state for state in await visit.operations.replays() if state.project == visit.project]
    shown = next((state for state in states if not state.has_ended), None)
    if replay_id:
        shown = await visit.operations.replay(replay_id)
    live = next((row for row in rows if row.state == "live"), None)
    empty = dict.fromkeys(_FIELDS)
    frame = {
        "rows": rows,
        "live": live,
        "replay": shown,
        "others": [state for state in states if shown is None or state.id != shown.id],
        "plan": _plan_of(shown),
        "options": empty if shown is None else empty | _text(shown.options),
    }
    response = visit.render("generations.html", **(frame | values))
    if shown is not None and shown.has_ended and "HX-Request" in visit.request.headers:
        # the part that is read again has no forms, and the choices of the forms have changed
        response.headers["HX-Refresh"] = "true"
    return response

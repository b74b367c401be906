"""Replays, switches and drops, each in a child process that publishes its state to Redis.

The gateway itself has neither models nor chunkers, so it runs ``headrace replay``. A child that is
killed has not changed the live index.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from redis.asyncio import Redis

from events.names import Names
from events.replays import Operation, ReplayState, ReplayStates
from runtime import errors
from runtime.child_process import ChildProcess
from runtime.errors import Conflict, HeadraceError, NotFound, OperatorError, UsageError
from runtime.settings import Settings
from store.generations.catalog import Generation
from store.generations.inventory import Inventory

__all__ = ["Replays"]

log = structlog.get_logger(__name__)

_POLL = timedelta(milliseconds=50)
_STOP_TIMEOUT = timedelta(seconds=20)
_ERRORS: Mapping[str, type[HeadraceError]] = {
    "ConfigurationError": errors.ConfigurationError,
    "Conflict": Conflict,
    "LogFull": errors.LogFull,
    "NotFound": NotFound,
    "NotSwitched": Conflict,
    "ReplayLost": errors.Unavailable,
    "Unavailable": errors.Unavailable,
    "CircuitOpen": errors.Unavailable,
    "UnknownProject": errors.UnknownProject,
    "UsageError": UsageError,
}
"""Error that is raised here for the code of an error in a child."""

_DIRECTORY_NAME = re.compile(r"[\w-][\w.-]{0,99}")


class Replays:
    """Operations on the generations of projects, by child processes of this one.

    Every method raises Unavailable if Redis or Postgres can't be reached.

    Args:
        settings: those of the children, with the credentials of an operator.
        redis: connection of an operator.
        names: keys of the deployment.
        inventory: the generations.
        patience: longest time to wait for the end of a short operation.
    """

    def __init__(
        self,
        settings: Settings,
        redis: Redis,
        names: Names,
        inventory: Inventory,
        patience: timedelta = timedelta(seconds=20),
    ) -> None:
        self._settings = settings
        self._states = ReplayStates(redis, names)
        self._inventory = inventory
        self._patience = patience
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._children: dict[str, ChildProcess] = {}
        self._logs = Path(tempfile.mkdtemp(prefix="headrace-replays-"))

    async def close(self) -> None:
        """End the children; a replay keeps what it has built, and can be resumed."""
        children = self._children.values()
        await asyncio.gather(*(child.stop(_STOP_TIMEOUT) for child in children))
        if self._watches:
            await asyncio.wait(self._watches.values())
        shutil.rmtree(self._logs, ignore_errors=True)

    async def start(self, project: str, options: Mapping[str, Any]) -> ReplayState:
        """Start a replay, and return its first state.

        ``options`` are those of ``headrace replay``, by name; ``gate`` names a directory under
        ``gates`` in the home.

        Raises:
            UnknownProject: no such project.
            NotFound: no such gate.
            Conflict: the project is being replayed.
        """
        await self._check_free(project)
        arguments = self._arguments(options)
        return await self._spawn("replay", project, [f"--project={project}", *arguments], options)

    async def plan(self, project: str, options: Mapping[str, Any]) -> ReplayState:
        """Estimate a replay; return its state when it has ended, or after ``patience``.

        Raises:
            UnknownProject: no such project.
            UsageError: the options can't be used.
        """
        await self._inventory.projects(project)
        arguments = [f"--project={project}", "--dry-run", *self._arguments(options)]
        return _checked(await self._ended(await self._spawn("plan", project, arguments, options)))

    async def switch(self, project: str, generation_id: int) -> ReplayState:
        """Make a former generation live; return its state as ``plan`` does.

        Raises:
            UnknownProject, NotFound: no such project or generation.
            Conflict: it is not a former generation, or the project is being replayed.
        """
        generation = await self._generation(project, generation_id)
        if generation.state != "former":
            raise Conflict(
                f"generation {generation.id} is {generation.state}",
                "switch to a former generation",
            )
        return await self._change("switch", project, ["switch", str(generation.id)], generation.id)

    async def rollback(self, project: str) -> ReplayState:
        """Make the generation live that was live before; return its state as ``plan`` does.

        Raises:
            UnknownProject: no such project.
            Conflict: there is no former generation, or the project is being replayed.
        """
        try:
            generation = await self._inventory.former(project)
        except NotFound:
            raise
        except UsageError as error:
            raise Conflict(error.message, error.remedy) from error
        arguments = ["rollback", f"--project={project}"]
        return await self._change("rollback", project, arguments, generation.id)

    async def drop(self, project: str, generation_id: int) -> ReplayState:
        """Delete a generation that is not live; return its state as ``plan`` does.

        Raises:
            UnknownProject, NotFound: no such project or generation.
            Conflict: it is live, queries may still read it, or the project is being replayed.
        """
        generation = await self._generation(project, generation_id)
        if generation.state == "live":
            raise Conflict(f"generation {generation.id} is live", "switch to another first")
        return await self._change("drop", project, ["drop", str(generation.id)], generation.id)

    async def find(self, replay_id: str) -> ReplayState:
        """Return the state of an operation of any process.

        Raises:
            NotFound: there is none, or it is not kept any more.
        """
        return self._seen_here(await self._states.find(replay_id))

    async def all(self) -> list[ReplayState]:
        """Return the states of the last 50 operations, newest first."""
        return [self._seen_here(state) for state in await self._states.all()]

    async def stop(self, replay_id: str) -> ReplayState:
        """Stop an operation of any process; return its state when it has ended.

        It is still ``running`` if that takes longer than ``patience``, as when the replay is
        already switching.

        Raises:
            NotFound: there is none.
        """
        state = await self.find(replay_id)
        if state.has_ended:
            return state
        await self._states.request_stop(replay_id)
        return await self._ended(state)

    async def _change(
        self, operation: Operation, project: str, arguments: list[str], generation: int
    ) -> ReplayState:
        await self._check_free(project)
        started = await self._spawn(operation, project, arguments, {"generation": generation})
        try:
            return _checked(await self._ended(started))
        except NotFound:
            raise
        except UsageError as error:
            raise Conflict(error.message, error.remedy) from error

    async def _generation(self, project: str, generation_id: int) -> Generation:
        await self._inventory.projects(project)
        owner, generation = await self._inventory.find(generation_id)
        if owner != project:
            raise NotFound(
                f"{project} has no generation {generation_id}", "`headrace replay list` lists all"
            )
        return generation

    async def _check_free(self, project: str) -> None:
        """Raise Conflict if a replay, switch or drop of the project runs; UnknownProject, too."""
        await self._inventory.projects(project)
        for state in await self.all():
            if state.project == project and not state.has_ended and state.operation != "plan":
                raise Conflict(
                    f"{project} is being replayed by another process",
                    f"wait for the end of {state.operation} {state.id}, or stop it",
                )

    def _arguments(self, options: Mapping[str, Any]) -> list[str]:
        names = {"since": "from", "max_drop": "max-drop"}
        arguments = []
        for name, value in options.items():
            if value is not None:
                chosen = self._gate(str(value)) if name == "gate" else value
                arguments.append(f"--{names.get(name, name)}={chosen}")
        return arguments

    def _gate(self, name: str) -> Path:
        """Path of a quality gate; no other directory can be named from outside."""
        directory = self._settings.home_directory / "gates" / name
        if _DIRECTORY_NAME.fullmatch(name) is None or not directory.is_dir():
            raise NotFound(
                f"there is no quality gate {name[:100]!r}",
                f"put its files into {self._settings.home_directory / 'gates'}/NAME",
            )
        return directory

    async def _spawn(
        self, operation: Operation, project: str, arguments: list[str], options: Mapping[str, Any]
    ) -> ReplayState:
        chosen = {name: value for name, value in options.items() if value is not None}
        state = ReplayState(project=project, operation=operation, options=chosen)
        await self._states.put(state)
        child = ChildProcess(
            f"the {operation} of {project}",
            [
                *(sys.executable, "-P", "-m", "gateway.main", "replay"),
                *arguments,
                *("--json", f"--id={state.id}"),
            ],
            log=self._logs / f"{state.id}.log",
            environment={**os.environ, **self._settings.variables()},
        )
        child.start()
        self._children[state.id] = child
        self._watches[state.id] = asyncio.create_task(self._watch(state.id, child))
        return state

    async def _watch(self, replay_id: str, child: ChildProcess) -> None:
        """Note the end of a child that could not report it."""
        while child.is_running:  # noqa: ASYNC110  # see ChildProcess
            await asyncio.sleep(_POLL.total_seconds())
        ending = child.ending()
        del self._children[replay_id]
        try:
            state = await self._states.find(replay_id)
            if not state.has_ended or state.state == "lost":
                await self._states.put(state.lost(ending))
        except HeadraceError as error:
            log.warning("replay.end_not_published", replay=replay_id, reason=error.message)
        finally:
            (self._logs / f"{replay_id}.log").unlink(missing_ok=True)
            del self._watches[replay_id]

    async def _ended(self, state: ReplayState) -> ReplayState:
        deadline = asyncio.get_running_loop().time() + self._patience.total_seconds()
        while not state.has_ended and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL.total_seconds())
            state = await self.find(state.id)
        return state

    def _seen_here(self, state: ReplayState) -> ReplayState:
        """Return a state as it is; a child that has not reported yet is not lost while it runs.

        Its start may take long on a busy machine.
        """
        is_starting = not state.pid and state.id in self._children
        return state.model_copy(update={"state": "running"}) if is_starting else state


def _checked(state: ReplayState) -> ReplayState:
    """Raise the error of an operation that failed; return the state of any other."""
    if state.error is None:
        return state
    kind = _ERRORS.get(state.error.code, OperatorError)
    raise kind(state.error.message, state.error.remedy)

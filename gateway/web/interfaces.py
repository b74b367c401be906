"""Parts of the gateway that the pages use, as far as they use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from events.models import QueryAnswer
from gateway.auth.callers import Caller
from runtime.intervals import TTLCache

__all__ = ["Batches", "Knowledge", "Operations", "Session", "Sessions", "Site"]

_REMEMBERED_SECONDS = 5.0


class Session(Protocol):
    """Session of a browser: its caller, its cookie, and the token of its forms."""

    @property
    def caller(self) -> Caller:
        """Caller of the session."""

    @property
    def cookie(self) -> str:
        """Value of the cookie."""

    @property
    def csrf_token(self) -> str:
        """Token that every form of the session carries."""

    def check_form(self, csrf_token: str) -> None:
        """Check the token of a form.

        Raises:
            Forbidden: it is not the one of this session.
        """


class Sessions(Protocol):
    """Sessions of browsers, found by the value of a cookie."""

    async def redeem(self, ticket: str) -> Session:
        """Open a session with a ticket of one use."""

    async def open_session(self, api_key: str, address: str = "") -> Session:
        """Open a session with an API key; ``address`` is the IP address of the client."""

    async def find(self, cookie: str) -> Session:
        """Return the session with this cookie.

        Raises:
            Unauthenticated: there is none.
        """

    async def end(self, cookie: str) -> None:
        """End the session."""


class Knowledge(Protocol):
    """Questions, and the reading of documents, for callers."""

    async def ask(self, caller: Caller, project: str, question: Any) -> QueryAnswer:
        """Return the answer to a ``gateway.knowledge.Question``."""

    def reading(self, caller: Caller, project: str | None = None) -> Any:
        """Return the ``store.views.listing.Listing`` for a caller that may read the project."""


class Batches(Protocol):
    """Progress of batches, counted in the ledger."""

    async def progress(self, project: str, batch: str) -> Any:
        """Progress of one batch."""

    async def rejected(self, project: str, batch: str, *, agent: str | None) -> Sequence[Any]:
        """Rejected changes of one batch, with reasons."""


class Operations(Protocol):
    """Operations of a process that was started with ``--operator``."""

    async def status(self) -> Mapping[str, Any]:
        """State of the deployment, as ``headrace status --json`` prints it."""

    async def history(self, minutes: int = 120) -> Sequence[Any]:
        """Queue depth, freshness, rates and memory by minute."""

    async def dead_letter_counts(self) -> Sequence[Any]:
        """Number of dead letters by topic, error and project."""

    async def dead_letters(
        self,
        *,
        topic: str | None = None,
        project: str | None = None,
        error: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Any]:
        """Dead letters, newest first."""

    async def dead_letter(self, letter_id: str) -> Any:
        """One dead letter."""

    async def redrive(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002 - a name of the interface
        count: int | None = None,
    ) -> Sequence[Any]:
        """Redrive the letters named, or the ``count`` letters of a filter; return each outcome."""

    async def drop(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002 - a name of the interface
        count: int | None = None,
    ) -> Sequence[Any]:
        """Drop the letters named, or the ``count`` letters of a filter; return each outcome."""

    async def generations(self, project: str) -> Sequence[Any]:
        """Generations of a project, oldest first."""

    async def start_replay(
        self,
        project: str,
        *,
        model: str | None = None,
        chunking: str | None = None,
        since: str | None = None,
        kind: str | None = None,
        collection: str | None = None,
        gate: str | None = None,
        max_drop: float | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Start a replay; with ``dry_run``, only estimate it."""

    async def replay(self, replay_id: str) -> Any:
        """Progress of a replay."""

    async def replays(self) -> Sequence[Any]:
        """States of the last replays, switches and drops, newest first."""

    async def stop_replay(self, replay_id: str) -> Any:
        """Stop a replay."""

    async def switch(self, project: str, generation: int) -> Any:
        """Make a former generation live."""

    async def rollback(self, project: str) -> Any:
        """Make the generation live that was live before."""

    async def drop_generation(self, project: str, generation: int) -> Any:
        """Delete a generation that is not live."""

    async def evaluations(self, project: str) -> Sequence[Any]:
        """Saved evaluations, newest first."""

    async def evaluation(self, evaluation_id: str) -> Any:
        """One evaluation with the scores of its questions."""


@dataclass(frozen=True)
class Site:
    """Everything that the pages use.

    ``operations`` is None in a process without ``--operator``. ``remembered`` keeps what the frame
    of every page shows, for a few seconds.
    """

    sessions: Sessions
    knowledge: Knowledge
    batches: Batches
    operations: Operations | None = None
    remembered: TTLCache[tuple[str, ...], Sequence[Any]] = field(
        default_factory=lambda: TTLCache(_REMEMBERED_SECONDS)
    )

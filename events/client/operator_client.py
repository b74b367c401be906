"""The client of the command line, which also reads log positions and the workers' progress."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from events.client.accepted import AcceptedChanges
from events.client.client import TIMEOUT, Client
from events.client.feed import OutcomeFeed
from events.client.follow import Following
from events.heartbeats import Heartbeat, Heartbeats
from events.models import QueryAnswer, QueryFields
from events.names import LARGEST_SEQUENCE, Lane, LogPosition, Names
from events.server.connection import redis_errors, retrying
from events.streams.presence import present_changes, read_cursors

__all__ = ["OperatorClient"]


class OperatorClient(Client):
    """A client for programs that also watch the log and the workers, such as a sync."""

    @property
    def names(self) -> Names:
        """Names of the keys of the deployment, which follow a raise of its partitions."""
        return self._names

    async def horizon(self) -> int:
        """Return the current log position, by the clock of Redis.

        Earlier changes are below it, later ones above. A sync takes its source at this position
        (``Sources.take``).

        Raises:
            Unavailable: Redis can't be reached.
            ConfigurationError: the deployment has another number of partitions.
        """
        await retrying(self._know_deployment)
        with redis_errors():
            seconds, microseconds = await self._redis.time()
        milliseconds = seconds * 1000 + microseconds // 1000
        return LogPosition.of_entry(Lane.LIVE, 0, f"{milliseconds}-{LARGEST_SEQUENCE}").position

    async def ask_query(
        self,
        project: str,
        query: QueryFields,
        *,
        agent: str | None = None,
        timeout: timedelta = TIMEOUT,
    ) -> QueryAnswer:
        """Return the answer to a query whose fields were validated before; errors as of ``ask``."""
        fields = {name: getattr(query, name) for name in QueryFields.model_fields}
        if query.like is not None:
            del fields["text"]
        return await self._ask(project, agent, fields, timeout)

    def following(self, *, vectors: bool = False) -> Following:
        """Create a follower of changes that can be added while more are published."""
        return Following(self._outcomes, vectors=vectors)

    def feed(self) -> OutcomeFeed:
        """Create a live feed of all outcomes."""
        return OutcomeFeed(self._outcomes)

    def accepted(self) -> AcceptedChanges:
        """Return the changes that gateways have accepted."""
        return AcceptedChanges(self._redis, self._names)

    async def present(self, tokens: Iterable[str]) -> set[str]:
        """Return the given changes that wait in the log; see ``present_changes``.

        Raises:
            Unavailable: Redis can't be reached.
        """
        return await present_changes(self._redis, self._names, tokens)

    async def cursors(self) -> tuple[object, ...]:
        """Return the progress of the workers in the log; it differs whenever anything has moved.

        Raises:
            Unavailable: Redis can't be reached.
            ConfigurationError: our user may not read the progress.
        """
        return await read_cursors(self._redis, self._names)

    async def heartbeats(self) -> list[Heartbeat]:
        """Return the workers of the deployment; raises as ``cursors``."""
        return await Heartbeats(self._redis, self._names).read()

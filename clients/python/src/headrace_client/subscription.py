"""Subscription to the outcomes of a project, without I/O: it parses what a transport receives."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic

import httpx2
from pydantic import ValidationError

from headrace_client import calls
from headrace_client.calls import Call
from headrace_client.errors import ServerDefect, Unavailable
from headrace_client.models import DocumentEmbedded, DocumentIndexed, DocumentRejected, Outcome

__all__ = ["Subscription"]

_OUTCOMES: Mapping[str, type[DocumentIndexed | DocumentEmbedded | DocumentRejected]] = {
    "document.indexed": DocumentIndexed,
    "document.embedded": DocumentEmbedded,
    "document.rejected": DocumentRejected,
}
_RECONNECT_S = 2.0
_RETRY_MS = re.compile(rb"\d{1,5}")


class Subscription:
    """Outcomes that were received and not taken, and the position to continue from.

    Args:
        project: the project to follow.
        batch: only outcomes of this batch.
        prefix: beginning of the uris.
        after: position after which to begin. None means the next outcome.
    """

    def __init__(
        self, project: str, *, batch: str | None, prefix: str | None, after: str | None
    ) -> None:
        self.position = after
        """Position of the last outcome that was taken, or of a later one that is not wanted."""
        self.is_live = False
        """Whether the connection has brought a position, so that no later outcome is missed."""
        self.pause_s = _RECONNECT_S
        """Time to wait before the next connection, in seconds."""
        self._project = project
        self._batch = batch
        self._prefix = prefix
        self._received = after
        self._waiting: deque[tuple[Outcome, str | None]] = deque()
        self._event = _Event()
        self._rest = b""
        self._failing_since: float | None = None

    def call(self) -> Call[httpx2.Response]:
        """Return the call that opens the next connection, after the last received position."""
        self.is_live = False
        self._event, self._rest = _Event(), b""
        return calls.outcomes(
            self._project, batch=self._batch, prefix=self._prefix, after=self._received
        )

    def receive(self, content: bytes) -> None:
        """Add a part of the stream.

        Raises:
            ServerDefect: an outcome can't be read.
        """
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            if text := line.removesuffix(b"\r"):
                self._event.add(text)
            else:
                self._end_event()

    def take(self) -> Outcome | None:
        """Return the next outcome that was received; None if there is none."""
        if not self._waiting:
            return None
        outcome, self.position = self._waiting.popleft()
        if not self._waiting:
            self.position = self._received
        return outcome

    def lose(self, deadline: timedelta, reason: str) -> None:
        """Handle the end of a connection.

        Raises:
            Unavailable: for as long as ``deadline``, no connection brought a position.
        """
        now = monotonic()
        if self.is_live:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > deadline.total_seconds():
            raise Unavailable(
                f"the stream of outcomes ended before it began: {reason}",
                "check that the gateway can reach Redis, and follow again from the last position",
            )

    def _end_event(self) -> None:
        event, self._event = self._event, _Event()
        if event.retry_s is not None:
            self.pause_s = event.retry_s
        if event.id is not None:
            self._received = event.id
            self.is_live = True
        model = _OUTCOMES.get(event.name)
        if model is not None:
            self._waiting.append((_parsed(model, event.data), self._received))
        elif not self._waiting:
            self.position = self._received


class _Event:
    """Fields of an event of the stream, of which some lines may be missing."""

    def __init__(self) -> None:
        self.name = ""
        self.id: str | None = None
        self.retry_s: float | None = None
        self._data: list[bytes] = []

    @property
    def data(self) -> bytes:
        return b"\n".join(self._data)

    def add(self, line: bytes) -> None:
        """Add a line; comments and unknown fields are left out."""
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self.name = value.decode(errors="replace")
        elif field == b"data":
            self._data.append(value)
        elif field == b"id":
            self.id = value.decode("ascii", errors="ignore")
        elif field == b"retry" and _RETRY_MS.fullmatch(value):
            self.retry_s = int(value) / 1000


def _parsed(
    model: type[DocumentIndexed | DocumentEmbedded | DocumentRejected], data: bytes
) -> Outcome:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise ServerDefect(
            f"an outcome of the stream can't be read: {error.errors()[0]['msg']}",
            "update headrace-client, or check that HEADRACE_URL is the address of a gateway",
        ) from error

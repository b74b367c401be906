"""Records of published event ids in Redis."""

from __future__ import annotations

import re
from dataclasses import dataclass

from events.names import LogPosition
from runtime.errors import MalformedEvent

__all__ = ["Trace"]

_RECORD = re.compile(r"(\S+)(?: ([0-9]+-[0-9]+))?(?: ([A-Za-z0-9+/]{16}))?")


@dataclass(frozen=True, slots=True)
class Trace:
    """Redis' record of an event: its token and the token of the entry that holds it.

    ``raw`` is empty for an event without a record. The other fields are None then, and also if the
    record can't be parsed. ``fingerprint`` is also None if an older publisher wrote the record.
    """

    raw: bytes = b""
    token: str | None = None
    entry: str | None = None
    fingerprint: str | None = None

    @classmethod
    def parse(cls, raw: bytes | None) -> Trace:
        """Parse the record that publishing wrote; any publisher may have written something else."""
        if raw is None:
            return cls()
        record = _RECORD.fullmatch(raw.decode(errors="replace"))
        if record is None:
            return cls(raw)
        token, entry_id, fingerprint = record.groups()
        entry = token.rpartition(":")[0] + f":{entry_id}" if entry_id else token
        try:
            for text in (token, entry):
                LogPosition.from_token(text)
        except MalformedEvent:
            return cls(raw)
        return cls(raw, token, entry, fingerprint)

    def is_of_other(self, fingerprint: str) -> bool:
        """Return whether the record is known to be of another change than that of ``fingerprint``.

        An empty ``fingerprint``, of an event that is not a change, can't be compared.
        """
        return bool(fingerprint) and self.fingerprint not in {None, fingerprint}

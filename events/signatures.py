"""Signed events: only a holder of a project's key can change the project.

A signature is the HMAC-SHA256 of the exact bytes of an entry's field ``event``, keyed with the
UTF-8 bytes of the key's secret. It is sent beside them, in the field ``signature`` (a header on
Kafka): ``v1:<key id>:<64 hex digits>``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Self

from runtime.errors import ConfigurationError, SignatureRefused

__all__ = ["LONGEST_SIGNATURE", "SIGNATURE_FIELD", "Keys", "SigningKey"]

SIGNATURE_FIELD = b"signature"
LONGEST_SIGNATURE = 128
_SECRET_BYTES = 32
_ID_BYTES = 4
_KEY = re.compile(r"([a-z0-9][a-z0-9_-]{0,31}):([!-~]{16,256})")
_SIGNATURE = re.compile(rb"v1:([a-z0-9][a-z0-9_-]{0,31}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A publisher's key; ``repr`` does not show its secret."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """Create a random key of 256 bits."""
        return cls(secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``<id>:<secret>``, as ``headrace keys add`` prints it.

        Raises:
            ConfigurationError: the text has another form; the message doesn't quote it.
        """
        match = _KEY.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                "HEADRACE_SIGNING_KEY is not a signing key",
                "write <id>:<secret>, as `headrace keys add` prints it",
            )
        return cls(match[1], match[2])

    def sign(self, event: bytes) -> str:
        """Return the signature of an event's bytes."""
        return f"v1:{self.id}:{_digest(self.secret, event)}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a project: secrets of the ``active`` ones by id, ids of the ``retired`` ones."""

    active: Mapping[str, str] = field(default_factory=dict, repr=False)
    retired: Set[str] = frozenset()

    def refusal(self, event: bytes, signature: bytes | None) -> SignatureRefused | None:
        """Return the reason to refuse an event, or None if its signature is valid.

        The caller accepts every event of a project without active keys before it calls this.
        """
        if signature is None:
            return SignatureRefused(
                "the project accepts signed changes only, and this has no signature",
                "publish it with HEADRACE_SIGNING_KEY set to a key of the project",
            )
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            return SignatureRefused(
                "the signature does not have the form v1:<key id>:<64 hex digits>"
            )
        key_id, digest = match[1].decode(), match[2].decode()
        if key_id in self.retired:
            return SignatureRefused(f"the signature is by the key {key_id}, which is retired")
        if key_id not in self.active:
            return SignatureRefused(
                f"the signature is by {key_id}, which is not a key of the project"
            )
        if not hmac.compare_digest(_digest(self.active[key_id], event), digest):
            return SignatureRefused(f"the signature by the key {key_id} does not match the event")
        return None


def _digest(secret: str, event: bytes) -> str:
    return hmac.new(secret.encode(), event, hashlib.sha256).hexdigest()

"""Signed events: only who holds a key of a project can change it.

A signature is the HMAC-SHA256 of the very bytes of an entry's field ``event``, keyed with the UTF-8
bytes of the key's secret. It travels beside them, in the field ``signature`` (a header on Kafka):
``v1:<key id>:<64 hex digits>``.
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
    """A publisher's key; its secret shows in no ``repr``."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """A random one: 256 bits."""
        return cls(secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``<id>:<secret>``, as ``headrace keys add`` prints it.

        Raises:
            ConfigurationError: it isn't that; the message doesn't quote it.
        """
        match = _KEY.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                "HEADRACE_SIGNING_KEY is no key: it should be <id>:<secret>, "
                "as `headrace keys add` prints it"
            )
        return cls(match[1], match[2])

    def sign(self, event: bytes) -> str:
        """The signature of an event's bytes."""
        return f"v1:{self.id}:{_digest(self.secret, event)}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a project: secrets of the ``active`` ones by id, ids of the ``retired`` ones."""

    active: Mapping[str, str] = field(default_factory=dict, repr=False)
    retired: Set[str] = frozenset()

    def refusal(self, event: bytes, signature: bytes | None) -> SignatureRefused | None:
        """Why an event isn't taken; None: it is, for it is signed, or the project has no key."""
        if not self.active:
            return None
        if signature is None:
            return SignatureRefused(
                "the project takes signed changes only, and this has no signature: publish it"
                " with HEADRACE_SIGNING_KEY set to a key of the project"
            )
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            return SignatureRefused("the signature isn't v1:<key id>:<64 hex digits>")
        key_id, digest = match[1].decode(), match[2].decode()
        if key_id in self.retired:
            return SignatureRefused(f"the signature is by the key {key_id}, which is retired")
        if key_id not in self.active:
            return SignatureRefused(f"the signature is by {key_id}, no key of the project")
        if not hmac.compare_digest(_digest(self.active[key_id], event), digest):
            return SignatureRefused(f"the signature by the key {key_id} isn't that of the event")
        return None


def _digest(secret: str, event: bytes) -> str:
    return hmac.new(secret.encode(), event, hashlib.sha256).hexdigest()

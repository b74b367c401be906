"""Signatures: valid ones, invalid ones, and errors that reveal no secret."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

import pytest

from events.signatures import LONGEST_SIGNATURE, Keys, SigningKey
from processors.admission import KeyRing, Signed
from runtime.errors import ConfigurationError

KEY = SigningKey("k1", "a secret of some length")
KEYS = Keys({KEY.id: KEY.secret}, frozenset({"old"}))
EVENT = b'{"type":"document.changed"}'


def signature_of(event: bytes) -> bytes:
    return KEY.sign(event).encode()


def test_a_signature_is_what_any_language_makes() -> None:
    """A signature is HMAC-SHA256 over the bytes, keyed with the secret as it is printed."""
    digest = hmac.new(b"a secret of some length", EVENT, hashlib.sha256).hexdigest()
    assert KEY.sign(EVENT) == f"v1:k1:{digest}"
    assert KEYS.refusal(EVENT, signature_of(EVENT)) is None
    assert len(SigningKey("x" * 32, KEY.secret).sign(EVENT)) <= LONGEST_SIGNATURE


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (None, "has no signature; publish it with HEADRACE_SIGNING_KEY set"),
        (b"", "does not have the form v1:"),
        (b"\xff\x00", "does not have the form v1:"),
        (signature_of(EVENT)[:-1], "does not have the form v1:"),
        (signature_of(EVENT).upper(), "does not have the form v1:"),
        (b"v2" + signature_of(EVENT)[2:], "does not have the form v1:"),
        (signature_of(EVENT + b" "), "does not match the event"),
        (SigningKey("k1", "another secret entirely").sign(EVENT).encode(), "does not match"),
        (SigningKey("k2", KEY.secret).sign(EVENT).encode(), "not a key of the project"),
        (SigningKey("old", KEY.secret).sign(EVENT).encode(), "retired"),
    ],
)
def test_anything_else_is_refused_with_the_reason(signature: bytes | None, reason: str) -> None:
    """A refusal gives its reason, and neither the secret nor the right signature."""
    refusal = KEYS.refusal(EVENT, signature)
    assert refusal is not None
    assert reason in str(refusal)
    assert KEY.secret not in str(refusal)
    assert signature_of(EVENT).decode()[-64:] not in str(refusal)


@pytest.mark.parametrize("keys", [Keys(), Keys({}, frozenset({"k1"}))])
async def test_a_project_without_active_keys_takes_everything(keys: Keys) -> None:
    """A project without active keys accepts events with and without signatures."""
    reading = Reading()
    reading.keys = keys
    events = [Event(None), Event(b"nonsense")]
    assert await KeyRing(reading).refusals("docs", events) == [None, None]


@pytest.mark.parametrize(
    "text", ["", "secret", "id:", ":secret-of-some-length", "id:short", "ID:" + 32 * "s"]
)
def test_what_is_no_key_is_not_quoted(text: str) -> None:
    """The error for an invalid key does not quote it, because it may be a mistyped key."""
    with pytest.raises(ConfigurationError, match="HEADRACE_SIGNING_KEY") as raised:
        SigningKey.parse(text)
    assert not text or text not in str(raised.value).replace("<id>:<secret>", "")


def test_a_new_key_can_be_read_back_and_does_not_show() -> None:
    """A new key can be parsed again, and ``repr`` does not show its secret."""
    key = SigningKey.new()
    assert SigningKey.parse(f"{key.id}:{key.secret}") == key
    assert key.secret not in repr(key)
    assert key.secret not in repr(Keys({key.id: key.secret}))


class Event:
    """Event with a signature."""

    def __init__(self, signature: bytes | None) -> None:
        self.raw = EVENT
        self.signature = signature


class Reading:
    """Reader of keys that counts its calls."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.count = 0

    async def __call__(self, projects: Collection[str]) -> dict[str, Keys]:
        self.count += 1
        return dict.fromkeys(projects, self.keys)


async def test_nothing_is_refused_by_keys_that_were_read_before() -> None:
    """A signature that the cached keys refuse is checked with fresh keys; a valid one is not."""
    reading = Reading()
    ring = KeyRing(reading)
    signed: list[Signed] = [Event(signature_of(EVENT))]
    unsigned: list[Signed] = [Event(None)]
    for _ in range(3):
        assert await ring.refusals("p", unsigned) == [None]
    assert reading.count == 1
    reading.keys = Keys({"k2": "x" * 32})
    ring = KeyRing(reading)
    [refusal] = await ring.refusals("p", signed)
    assert refusal is not None
    reading.keys = KEYS
    assert await ring.refusals("p", signed) == [None]
    assert reading.count == 3

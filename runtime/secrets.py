"""Masking of passwords and keys in everything that this process outputs.

Servers and libraries quote the values that they receive: a URL, a key, a header. Composition roots
therefore register the secrets of the process here once, and all output (logs, errors, dead
letters, outcomes, replies) passes through ``masked``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

__all__ = ["keep_secret", "masked", "secrets_of"]

_MASK = "***"
_SECRET_NAME = re.compile(r"pass(word|wd)?|secret|token(?!s)|credential|key", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(://[^/\s:@\"']*):[^/\s\"']+@")
_KEY_IN_URL = re.compile(r"([?&][\w-]*(?:key|password|token)=)[^&\s'\"]+", re.IGNORECASE)
_USER_INFO = re.compile(r"://[^/\s:@]*:(.+)@")
_OF_CALLERS = re.compile(r"\b(hr_[a-z0-9]{8}_|hr[st]_)[\w-]{16,}")
"""API keys, whose ids stay readable, and the cookies and tickets of sessions."""
_SHORTEST = 6
_WORD = re.compile(r"[a-z]+")

_secrets: set[str] = set()
_pattern: re.Pattern[str] | None = None


def keep_secret(values: Iterable[object], environment: Mapping[str, str] = {}) -> None:
    """Mask from now on the secrets among settings and in variables whose name reveals one.

    A secret that is short, or a word, can't be told apart from other text; it is masked only in
    URLs.
    """
    global _pattern  # noqa: PLW0603 - one for the process, as logging is
    candidates = [secret for value in values for secret in secrets_of(value)]
    candidates += [value for name, value in environment.items() if _SECRET_NAME.search(name)]
    for secret in candidates:
        if len(secret) >= _SHORTEST and not _WORD.fullmatch(secret):
            _secrets.update(_spellings(secret))
    if _secrets:
        longest_first = sorted(_secrets, key=len, reverse=True)
        _pattern = re.compile("|".join(map(re.escape, longest_first)))


def masked(text: str) -> str:
    """Return the text without secrets of this process or of callers, and without keys in URLs."""
    if _pattern is not None:
        text = _pattern.sub(_MASK, text)
    if "hr" in text:
        text = _OF_CALLERS.sub(rf"\1{_MASK}", text)
    if "://" not in text and "=" not in text:
        return text
    text = _PASSWORD_IN_URL.sub(rf"\1:{_MASK}@", text)
    return _KEY_IN_URL.sub(rf"\1{_MASK}", text)


def secrets_of(value: object) -> Iterator[str]:
    """Yield the secrets in a setting or its parts: the whole of a key, the password in a URL."""
    # a parser, which has no settings, does without this library
    from pydantic import BaseModel, SecretStr  # noqa: PLC0415

    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        yield text
        yield text.partition(":")[2]  # of <id>:<secret>
    elif isinstance(value, str) and "://" in value:
        yield from _passwords_in(value)
    elif isinstance(value, BaseModel):
        for _, part in value:
            yield from secrets_of(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from secrets_of(part)


def _passwords_in(url: str) -> Iterator[str]:
    match = _USER_INFO.search(url)
    if match is not None:
        yield match[1]
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    yield parts.password or ""
    for name, value in parse_qsl(parts.query):
        if _SECRET_NAME.search(name):
            yield value


def _spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, as encoded in a URL, and as quoted by JSON and Python."""
    for spelling in {secret, unquote(secret)}:
        yield spelling
        yield quote(spelling, safe="")
        yield json.dumps(spelling)[1:-1]
        yield json.dumps(spelling, ensure_ascii=False)[1:-1]
        yield repr(spelling)[1:-1]
        yield repr(spelling.encode())[2:-1]

"""Answers to the first messages of a client, from a file: they need neither the SDK nor a model.

A host waits for the list of tools, and importing the SDK takes far longer than answering. The
answers of ``handshake.jsonl`` are those of the SDK's server (``recorder``). They are only given to
messages of exactly the expected form. Any other message ends the handshake: the server answers it
and all that follow, errors included. ``replay`` brings the server into the state of the client.

This module and ``stdio`` import only light modules, because hosts wait for them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["FILE", "LONGEST_LINE", "PROJECT", "Handshake"]

FILE = Path(__file__).with_name("handshake.jsonl")
"""Recorded answers: in each line a method, its result, and the cases in which it is the result."""
PROJECT = "<project>"
"""Name in the recorded instructions in place of that of the project."""
LONGEST_LINE = 65_536
"""Bytes of a line above which it is left to the server."""

_INITIALIZE = "initialize"
_INITIALIZED = "notifications/initialized"
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_NAMES = frozenset({"name", "version", "title", "description", "websiteUrl"})
_REQUIRED_NAMES = frozenset({"name", "version"})
_OPEN_CAPABILITIES = frozenset({"elicitation", "experimental", "extensions", "sampling"})
_ID_BYTES = 16
_LARGEST_ID = 2**53
_MOST_BRACKETS = 150
_SURROGATE = rb"\ud"
_NONE: dict[str, Any] = {}


class Handshake:
    """State of one client, which starts with ``initialize`` or with a request of 2026-07-28.

    ``replayed`` is the id of the request that ``replay`` repeats. It is random, because a client
    may use any other.
    """

    def __init__(self, project: str | None, *, may_publish: bool) -> None:
        self.replayed = os.urandom(_ID_BYTES).hex()
        self._results = _recorded(project, may_publish=may_publish)
        self._version = ""
        self._is_stateless = False
        self._kept: list[bytes] = []

    def answer(self, line: bytes) -> bytes | None:
        """Return the line of the response, empty for a notification. None ends the handshake."""
        message = _message(line)
        if message is None:
            return None
        method, params = message["method"], message.get("params", _NONE)
        if "id" not in message:
            return self._notified(line, method, params)
        result = self._result(method, params)
        if result is None:
            return None
        if not self._kept:
            self._kept.append(_line({**message, "id": self.replayed}))
        return _line({"jsonrpc": "2.0", "id": message["id"], "result": result})

    @property
    def replay(self) -> bytes:
        """Lines that bring a server into the state of the client.

        Its response to the request of the id ``replayed`` must be dropped.
        """
        return b"".join(self._kept)

    def _notified(self, line: bytes, method: str, params: dict[str, Any]) -> bytes | None:
        if not self._version or self._is_stateless or method != _INITIALIZED or params:
            return None
        self._kept.append(line)
        return b""

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if self._version and not self._is_stateless:
            is_static = not params and method != _INITIALIZE
            return self._results.get((self._version, method)) if is_static else None
        version = _enveloped(params)
        is_stateless = version != ""
        if self._is_stateless and not is_stateless:
            return None  # the server refuses to change the protocol
        if not is_stateless and method == _INITIALIZE:
            version = _requested(params)
        result = self._results.get((version, method))
        if result is not None:
            self._version, self._is_stateless = version, is_stateless
        return result


def _recorded(project: str | None, *, may_publish: bool) -> dict[tuple[str, str], dict[str, Any]]:
    """Read the results for one access, by version of the protocol and method."""
    results = {}
    for line in FILE.read_bytes().splitlines():
        row = json.loads(line)
        if row["project"] == (project is not None) and row["publish"] == may_publish:
            result = row["result"]
            if project is not None and "instructions" in result:
                result["instructions"] = result["instructions"].replace(PROJECT, project)
            results.update({(version, row["method"]): result for version in row["versions"]})
    return results


def _message(line: bytes) -> dict[str, Any] | None:
    """Parse a request or notification. Returns None if it must be judged by the server."""
    encoded = line.removesuffix(b"\n").removesuffix(b"\r")
    if (
        encoded == line
        or len(line) > LONGEST_LINE
        or b"\r" in encoded
        or _SURROGATE in encoded.lower()
        or encoded.count(b"{") + encoded.count(b"[") > _MOST_BRACKETS
    ):
        return None
    try:
        message = json.loads(encoded.decode(), object_pairs_hook=_object, parse_constant=_refuse)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    keys = message.keys()
    if keys - {"id", "params"} != {"jsonrpc", "method"} or message["jsonrpc"] != "2.0":
        return None
    is_valid = (
        isinstance(message["method"], str)
        and isinstance(message.get("params", _NONE), dict)
        and ("id" not in keys or _is_id(message["id"]))
    )
    return message if is_valid else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is repeated")
    return members


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _is_id(value: object) -> bool:
    return type(value) is str or (type(value) is int and abs(value) < _LARGEST_ID)


def _requested(params: dict[str, Any]) -> str:
    """Version that a valid ``initialize`` proposes, else ''."""
    version = params.get("protocolVersion")
    is_valid = (
        params.keys() == {"protocolVersion", "clientInfo", "capabilities"}
        and isinstance(version, str)
        and _is_client(params["clientInfo"])
        and _are_capabilities(params["capabilities"])
    )
    return str(version) if is_valid else ""


def _enveloped(params: dict[str, Any]) -> str:
    """Version of a valid request of the stateless protocol without arguments, else ''."""
    envelope = params.get("_meta")
    if params.keys() != {"_meta"} or not isinstance(envelope, dict):
        return ""
    version = envelope.get(_VERSION_KEY)
    is_valid = (
        envelope.keys() - {_CLIENT_KEY} == {_VERSION_KEY, _CAPABILITIES_KEY}
        and isinstance(version, str)
        and (_CLIENT_KEY not in envelope or _is_client(envelope[_CLIENT_KEY]))
        and _are_capabilities(envelope[_CAPABILITIES_KEY])
    )
    return str(version) if is_valid else ""


def _is_client(value: object) -> bool:
    """Check a description of a client that has only texts."""
    return (
        isinstance(value, dict)
        and value.keys() >= _REQUIRED_NAMES
        and value.keys() <= _CLIENT_NAMES
        and all(isinstance(text, str) for text in value.values())
    )


def _are_capabilities(value: object) -> bool:
    """Check capabilities in a form that all versions of the protocol accept."""
    return isinstance(value, dict) and all(
        _is_capability(name, options) for name, options in value.items()
    )


def _is_capability(name: str, options: object) -> bool:
    if name == "roots":
        return options == {} or options in ({"listChanged": True}, {"listChanged": False})
    if name in _OPEN_CAPABILITIES:
        return isinstance(options, dict) and all(
            isinstance(option, dict) for option in options.values()
        )
    return _are_objects(options)


def _are_objects(value: object) -> bool:
    return isinstance(value, dict) and all(_are_objects(inner) for inner in value.values())


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

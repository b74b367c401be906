"""Address of a gateway and the API key for it: arguments, environment, or a running ``up``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from headrace_client.errors import ConfigurationError

__all__ = ["Address", "find_address"]

_URL = "HEADRACE_URL"
_API_KEY = "HEADRACE_API_KEY"
_HOME = "HEADRACE_HOME"
_USUAL_HOME = "~/.headrace"


@dataclass(frozen=True, slots=True)
class Address:
    """Where requests are sent, and the secret that they carry."""

    url: str
    api_key: str = field(repr=False)

    @property
    def is_local(self) -> bool:
        """True if the gateway is on this machine, so that no proxy is between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def find_address(url: str | None = None, api_key: str | None = None) -> Address:
    """Return the address and the API key, the first that is given of each.

    The order is: arguments, HEADRACE_URL and HEADRACE_API_KEY, a running ``headrace up``. The key
    of ``up`` is used for the gateway of ``up`` only.

    Raises:
        ConfigurationError: one of them is missing, or the address is not an HTTP URL.
    """
    local = _running_up()
    url = (url or os.environ.get(_URL) or local.url).rstrip("/")
    if not url:
        raise ConfigurationError(
            "no gateway is given, and no `headrace up` runs", f"set {_URL} and {_API_KEY}"
        )
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise ConfigurationError(
            f"{url[:200]!r} is not the address of a gateway", "use one like http://127.0.0.1:8420"
        )
    api_key = api_key or os.environ.get(_API_KEY) or (local.api_key if url == local.url else "")
    if not api_key:
        raise ConfigurationError(
            f"no API key is given for {url}",
            f"set {_API_KEY} (`headrace api-keys add` creates one)",
        )
    if not api_key.isascii() or not api_key.isprintable():
        raise ConfigurationError("the API key has characters that no key has", f"check {_API_KEY}")
    return Address(url, api_key)


def _running_up() -> Address:
    """Address and key of the user's ``up``; both are empty if none runs."""
    home = Path(os.environ.get(_HOME) or _USUAL_HOME).expanduser()
    try:
        announced = json.loads((home / "up.json").read_text("utf-8"))
        if not _is_alive(announced):
            return Address("", "")
        url = str(announced["gateway_url"]).rstrip("/")
        return Address(url, (home / "api-key").read_text("ascii").strip())
    except (OSError, ValueError, KeyError, TypeError):
        return Address("", "")


def _is_alive(announced: Mapping[str, object]) -> bool:
    """Return False if ``up`` was killed: its port may belong to another program."""
    if os.name != "posix":  # elsewhere, signal 0 would end the process
        return False
    try:
        os.kill(int(str(announced["pid"])), 0)
    except (OSError, ValueError):
        return False
    return True

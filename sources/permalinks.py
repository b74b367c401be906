"""Permanent links to lines of a file, from the URL of a git remote."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote, urlsplit

__all__ = ["permalink_template", "web_address"]

_SCP_LIKE = re.compile(r"^(?:[^@/\s]+@)?(?P<host>[\w.-]+):(?P<path>(?!//)\S+)$")
_GITHUB = "/blob/{commit}/{path}#L{start}-L{end}"
_GITLAB = "/-/blob/{commit}/{path}#L{start}-{end}"
_GITEA = "/src/commit/{commit}/{path}#L{start}-L{end}"
_FORGES = {
    "github": _GITHUB,
    "gitlab": _GITLAB,
    "gitea": _GITEA,
    "forgejo": _GITEA,
    "codeberg": _GITEA,
}
_LONGEST = 2048
_WEB = frozenset({"http", "https"})
_TRANSPORTS = _WEB | {"ssh", "git", "git+ssh"}


def permalink_template(remote: str) -> str | None:
    """Link with the placeholders ``{commit} {path} {start} {end}``.

    Returns None for an unknown forge, and for an address that is too long for an event.

    A forge is recognised by a label of its host name (``gitlab.example.org``). URLs may be https,
    ssh, git or scp-like. Names and passwords in the URL are left out.
    """
    base = web_address(remote.strip())
    if base is None:
        return None
    labels = (urlsplit(base).hostname or "").split(".")
    lines = next((_FORGES[label] for label in labels if label in _FORGES), None)
    if lines is None or len(base) + len(lines) > _LONGEST:
        return None
    return base + lines


def web_address(remote: str) -> str | None:
    """Web address of a remote, ``https://host/owner/repository``; None if there is none."""
    if scp_like := _SCP_LIKE.match(remote):
        return _joined("https", scp_like["host"], scp_like["path"])
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _TRANSPORTS or not host:
        return None
    if parts.scheme not in _WEB:
        return _joined("https", host, parts.path)
    return _joined(parts.scheme, f"{host}:{port}" if port else host, parts.path)


def _joined(scheme: str, host: str, path: str) -> str | None:
    path = unquote(path).strip("/").removesuffix(".git")
    if "/" not in path:
        return None
    return f"{scheme}://{host.lower()}/{quote(path)}"

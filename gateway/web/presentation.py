"""Templates, their filters, and the files that the pages load."""

from __future__ import annotations

import gzip
import hashlib
import json
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode, urlsplit

import brotli
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

__all__ = [
    "Coding",
    "StaticFile",
    "accepted_coding",
    "address",
    "compressed_file",
    "compressed_page",
    "environment",
    "outside_link",
    "static_files",
]

_HERE = Path(__file__).parent
_STATIC = _HERE / "static"
_VERSION_DIGITS = 12
_PAGE_QUALITY, _FILE_QUALITY = 5, 10
"""Qualities of Brotli that take about 1 ms for a page, and 40 ms for all files of one."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_MAIN_SCORES = ("ndcg@10", "recall@10", "mrr@10")
_UNITS = ("bytes", "KB", "MB", "GB", "TB")

Coding = Literal["br", "gzip"]


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file that the pages load. ``version`` is the beginning of its SHA-256."""

    content: bytes
    media_type: str
    version: str


@lru_cache(maxsize=1)
def static_files() -> Mapping[str, StaticFile]:
    """Every file by its path below ``static/``; no other path can be served."""
    paths = [path for path in _STATIC.rglob("*") if path.is_file() and path.suffix != ".toml"]
    return {path.relative_to(_STATIC).as_posix(): _static_file(path) for path in paths}


def _static_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "text/plain"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    version = hashlib.sha256(content).hexdigest()[:_VERSION_DIGITS]
    return StaticFile(content, media_type, version)


def accepted_coding(accepted: str) -> Coding | None:
    """Return the coding that compresses best among those of a header ``Accept-Encoding``."""
    codings = [coding.replace(" ", "").lower() for coding in accepted.split(",")]
    names = {coding.partition(";")[0] for coding in codings if not coding.endswith(";q=0")}
    if "br" in names:
        return "br"
    return "gzip" if "gzip" in names else None


def compressed_page(body: bytes, coding: Coding) -> bytes:
    """Compress a page that is sent once."""
    return _compressed(body, coding, _PAGE_QUALITY)


@lru_cache
def compressed_file(path: str, coding: Coding) -> bytes:
    """Compress one of ``static_files``, once in a process."""
    return _compressed(static_files()[path].content, coding, _FILE_QUALITY)


def _compressed(content: bytes, coding: Coding, quality: int) -> bytes:
    if coding == "gzip":
        return gzip.compress(content, mtime=0)
    compressed: bytes = brotli.compress(content, mode=brotli.MODE_TEXT, quality=quality)
    return compressed


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Templates with their filters. Every value is escaped, and a missing value is an error."""
    templates = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        auto_reload=False,
    )
    templates.filters |= {
        "count": _count,
        "duration": duration,
        "size": _size,
        "moment": _moment,
        "iso": _iso,
        "pretty": _pretty,
        "usd": _usd,
        "outside": outside_link,
        "main_scores": lambda scores: [scores[name] for name in _MAIN_SCORES],
        "commands": _commands,
        "sentence": lambda text: text[:1].upper() + text[1:],
    }
    templates.globals |= {"address": address, "static": _static}
    return templates


def address(path: str, **parameters: Any) -> str:
    """Address of a page; parameters that are None, '' or empty are left out."""
    pairs = [
        (name, value)
        for name, values in parameters.items()
        for value in (values if isinstance(values, list | tuple) else [values])
        if value not in (None, "")
    ]
    return f"{path}?{urlencode(pairs, safe='/', quote_via=quote)}" if pairs else path


def outside_link(url: str | None) -> str | None:
    """Return the URL if a page may link to it (http or https with a host), else None."""
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.netloc else None


def duration(seconds: float | None) -> str:
    """Short form of a duration in seconds, such as ``1.4 s`` or ``3 min``; unknown if None."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < _DAY else f"{seconds / _DAY:.1f} d"


def _static(name: str) -> str:
    """Address of a file; it changes with the file, so that browsers may keep it."""
    return f"/static/{name}?v={static_files()[name].version}"


def _count(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,.0f}"


def _size(number: float | None) -> str:
    if number is None:
        return "unknown"
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            break
        number /= 1024
    return f"{number:,.0f} {unit}" if number >= 10 or unit == "bytes" else f"{number:.1f} {unit}"


def _moment(value: datetime | str | None) -> str:
    """Time in UTC, to the second."""
    if value is None:
        return "never"
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _iso(value: datetime | str | None) -> str:
    return value.isoformat() if isinstance(value, datetime) else value or ""


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:,.4f}"


def _commands(text: str) -> Markup:
    """Text with the parts between backquotes as code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backquote without its partner
        return escape(text)
    code = (
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )
    return Markup("").join(code)


def _pretty(value: Any) -> str:
    """JSON with indentation; bytes and texts that are not JSON remain as they are."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)

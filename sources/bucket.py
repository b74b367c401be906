"""Source that is a folder of any storage that fsspec supports, such as S3."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import fsspec

from runtime.errors import ConfigurationError, Unavailable, UsageError
from runtime.secrets import masked
from sources.files import to_shown, to_uri
from sources.ignore_rules import (
    LARGEST_RULES_BYTES,
    RULES_FILE,
    Choice,
    IgnoreRules,
    TrackedPaths,
    rule_lines,
)
from sources.types import Content, Listing, Read, SizeLimits, Skip, WithoutHistory

__all__ = ["BucketSource", "open_bucket"]

_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "md5", "checksum", "crc32c", "sha256")
"""Names under which file systems report a digest of the content."""
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
_SETTLED_SECONDS = 2.0
"""Longest tick of a storage's clock; within a tick, a file can change unnoticed."""
_MOST_CHARACTERS = 300
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "s3": {"config_kwargs": {"connect_timeout": 10, "read_timeout": 60}},
}
"""Options of drivers whose own time limits are long."""


def open_bucket(url: str, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> BucketSource:
    """Open a URL; the driver finds its credentials by itself.

    Args:
        url: URL of a folder, such as ``s3://bucket/prefix``.
        include: patterns of files to include, as in ``open_source``.
        exclude: patterns, in the format of ``.gitignore``, of files to leave out.

    Raises:
        UsageError: fsspec does not know the URL.
        ConfigurationError: the driver of the URL is not installed.
        Unavailable: the storage can't be reached.
    """
    if "::" in url:
        raise UsageError(f"{_public(url)} joins several URLs", "name one URL")
    scheme = url.partition("://")[0]
    options = {**_OPTIONS.get(scheme, {}), "use_listings_cache": False, "skip_instance_cache": True}
    try:
        file_system, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise ConfigurationError(
            f"{_public(url)} needs a package that is not installed ({error})",
            "install it; for S3 that is `pip install 'headrace[s3]'`",
        ) from error
    except ValueError as error:
        raise UsageError(f"{_public(url)}: {_described(error)}", "name another URL") from None
    except Exception as error:  # some drivers connect at once
        raise _unavailable(_public(url), "opened", error) from error
    return BucketSource(file_system, str(root).rstrip("/"), _public(url), include, exclude)


class BucketSource(WithoutHistory):
    """Source of a folder in a storage. Uris are paths below the folder.

    A file has changed if its digest or, where the storage has none, its time or size has changed.

    Args:
        file_system: file system of fsspec.
        root: path of the folder in it.
        url: URL without credentials.
        include: patterns of files to include, as in ``open_source``.
        exclude: patterns, in the format of ``.gitignore``, of files to leave out.
    """

    kind = "bucket"

    def __init__(
        self,
        file_system: Any,
        root: str,
        url: str,
        include: Sequence[str],
        exclude: Sequence[str],
    ) -> None:
        self._file_system = file_system
        self._root = root
        self._url = url
        self._choice = Choice(tuple(include))
        self._exclude = tuple(exclude)
        self._unsettled = frozenset[str]()

    @property
    def name(self) -> str:
        """URL without credentials and options."""
        return self._url

    @property
    def key(self) -> str:
        """Identity, made of the URL."""
        return f"bucket:{self._url}"

    @property
    def location(self) -> str:
        """URL without credentials and options."""
        return self._url

    def list(self, sizes: SizeLimits) -> Listing:
        """List every file without reading any but the rules.

        Raises:
            UsageError: there is no file.
            Unavailable: the storage can't be reached, or refuses access.
        """
        with self._explained("listed"):
            self._file_system.invalidate_cache()
            details = self._file_system.find(self._root, detail=True)
        now = time.time()
        paths = {self._relative(path): info for path, info in details.items()}
        paths = {path: info for path, info in paths.items() if _is_file(path, info)}
        if not paths:
            raise UsageError(
                f"{self._url} has no files",
                "check the URL; `headrace source delete` deletes the documents of a source",
            )
        rules = IgnoreRules.at(Path("/"), self._choice, self._rule_lines(paths.get(RULES_FILE)))
        files: dict[str, str] = {}
        skipped: dict[str, Skip] = {}
        unsettled: set[str] = set()
        tracked = TrackedPaths(rules, paths)
        for path, info in sorted(paths.items()):
            left_out = tracked.skip(path)
            if left_out is not None:
                skipped[left_out[0]] = left_out[1]
                continue
            reason = _skip_reason(path, info, sizes)
            if reason is not None:
                skipped[to_shown(path)] = reason
                continue
            files[path] = _fingerprint(info)
            if _tag(info) is None and now - _modified(info) < _SETTLED_SECONDS:
                unsettled.add(path)
        self._unsettled = frozenset(unsettled)
        return Listing(files, skipped, included=frozenset(filter(rules.includes, files)))

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of files by their uri.

        Raises:
            Unavailable: the storage can't be reached, or refuses access.
        """

        def read(uri: str, fingerprint: str) -> Content:
            with self._explained("read"):
                raw = self._read(uri, sizes.of(uri) + 1)
            return Content(raw, "" if uri in self._unsettled else fingerprint)

        yield read

    def _read(self, path: str, most_bytes: int) -> bytes:
        raw: bytes = self._file_system.cat_file(f"{self._root}/{path}", start=0, end=most_bytes)
        return raw

    def _rule_lines(self, info: Mapping[str, Any] | None) -> Sequence[str]:
        if info is None or info.get("size") == 0:
            return self._exclude
        with self._explained("read"):
            raw = self._read(RULES_FILE, LARGEST_RULES_BYTES + 1)
        return [*rule_lines(raw), *self._exclude]

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._root).lstrip("/")

    @contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if verb == "read":  # it was deleted after it was listed
                raise
            raise UsageError(f"{self._url} doesn't exist", "name another URL") from None
        except Exception as error:  # drivers raise errors of their own packages
            raise _unavailable(self._url, verb, error) from error


def _unavailable(url: str, verb: str, error: Exception) -> Unavailable:
    return Unavailable(
        f"{url} can't be {verb} ({_described(error)})", "check the URL and its credentials"
    )


def _is_file(path: str, info: Mapping[str, Any]) -> bool:
    """False for a folder, and for the empty file that marks a folder in a bucket."""
    return bool(path) and not path.endswith("/") and info.get("type") != "directory"


def _skip_reason(path: str, info: Mapping[str, Any], sizes: SizeLimits) -> Skip | None:
    if info.get("islink"):
        return Skip.SYMLINK
    if to_uri(os.fsencode(path)) is None:
        return Skip.NAME
    if info.get("size") == 0:
        return Skip.EMPTY
    return Skip.OVERSIZED if int(info.get("size") or 0) > sizes.of(path) else None


def _fingerprint(info: Mapping[str, Any]) -> str:
    """Text that changes whenever the file does, of the digest, else of time, size and inode.

    Without a digest and a time, it is never the same, so that the file is read.
    """
    tag = _tag(info)
    if tag is not None:
        return f"{tag}.{info.get('size')}"
    modified = _modified(info)
    if not modified:
        return f"unknown.{time.time_ns()}"
    return f"{modified!r}.{info.get('size')}.{info.get('ino', '')}"


def _tag(info: Mapping[str, Any]) -> str | None:
    tag = next((info[name] for name in _TAGS if info.get(name)), None)
    return None if tag is None else str(tag).strip('"')


def _modified(info: Mapping[str, Any]) -> float:
    """Seconds since 1970; 0 if the storage gives no time."""
    value = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return 0.0
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return float(value) if isinstance(value, int | float) else 0.0


def _public(url: str) -> str:
    """URL without userinfo, options and trailing slash."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    except ValueError:
        return url.partition("://")[0] + "://…"


def _described(error: Exception) -> str:
    return masked(" ".join(f"{type(error).__name__}: {error}".split()))[:_MOST_CHARACTERS]

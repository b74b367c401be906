"""Source that is a file with one document per line, as any exporter can write it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from pydantic import ValidationError

from events.models import DocumentChange, first_problem
from runtime.errors import UsageError
from sources.files import fingerprint_of, read_regular
from sources.types import AllBut, Content, Details, Listing, Read, SizeLimits, Skip, WithoutHistory

__all__ = ["ImportSource", "open_import"]

_BODIES = ("content", "content_base64", "path")
_DETAILS = tuple(field.name for field in fields(Details))
_FIELDS = frozenset({"uri", "change", *_BODIES, *_DETAILS})
_ESCAPED = 6
"""Bytes of JSON for a byte of text, at most: a control character is written as ``\\u0000``."""
_OTHER_BYTES = 2**20


class _InvalidLine(Exception):
    """A line that is not a document."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Document of a line. Its body is ``content``, ``raw``, or the file ``path``."""

    uri: str
    is_deleted: bool
    details: Details
    content: str | None
    encoded: str | None
    path: str | None


def open_import(
    location: str, name: str | None = None, *, prune: bool = False, keep_going: bool = False
) -> ImportSource:
    """Open a file, or standard input if ``location`` is ``-``.

    Args:
        location: path of the file.
        name: name of the source, which standard input needs.
        prune: delete documents that the file does not name.
        keep_going: skip invalid lines; nothing is pruned if there are any.

    Raises:
        UsageError: the file can't be read, or standard input has no name.
    """
    if location == "-":
        if not name:
            raise UsageError("an import from standard input has no name", "add --source NAME")
        opened = _kept_input()
        return ImportSource(opened, Path.cwd(), name, prune=prune, keep_going=keep_going)
    path = Path(location).expanduser().resolve()
    if not path.is_file():
        raise UsageError(f"{path} is not a file", "name a file of JSON lines")
    return ImportSource(
        lambda: path.open("rb"), path.parent, str(path), prune=prune, keep_going=keep_going
    )


class ImportSource(WithoutHistory):
    """Source of a file of JSON lines.

    A document has changed if its line has, or the file that the line names in ``path``.

    Args:
        opened: opens the lines; they are read twice.
        folder: folder of the files that lines name.
        name: name of the source.
        prune: delete documents that the file does not name.
        keep_going: skip invalid lines; nothing is pruned if there are any.
    """

    kind = "import"

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[BinaryIO]],
        folder: Path,
        name: str,
        *,
        prune: bool,
        keep_going: bool,
    ) -> None:
        self._opened = opened
        self._folder = folder
        self._name = name
        self._prune = prune
        self._keep_going = keep_going
        self._offsets: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Absolute path of the file, or the name of standard input."""
        return self._name

    @property
    def key(self) -> str:
        """Identity, made of the name."""
        return f"import:{self._name}"

    @property
    def location(self) -> str:
        """Absolute path of the file, or the name of standard input."""
        return self._name

    def list(self, sizes: SizeLimits) -> Listing:
        """Read every line. Files that lines name are not read.

        Raises:
            UsageError: a line is not a document; the message has its number. Or the file can't be
                read, or nothing but blank lines is in it although ``prune`` is set.
        """
        longest = _longest(sizes)
        lines: dict[str, int] = {}
        files: dict[str, str] = {}
        skipped: dict[str, Skip] = {}
        problems: dict[str, str] = {}
        deleted: set[str] = set()
        for number, offset, raw in self._lines(longest):
            try:
                line = _parsed(raw, longest)
                _require_first(line.uri, lines)
                fingerprint = "" if line.is_deleted else self._fingerprint(line, raw)
            except _InvalidLine as error:
                if not self._keep_going:
                    raise UsageError(
                        f"{self._name}, line {number}: {error}",
                        "correct the line, or skip invalid lines by --keep-going",
                    ) from None
                skipped[f"{self._name}:{number}"] = Skip.INVALID
                problems[f"{self._name}:{number}"] = str(error)
                continue
            lines[line.uri] = number
            if line.is_deleted:
                deleted.add(line.uri)
            else:
                files[line.uri] = fingerprint
                self._offsets[line.uri] = offset
        if self._prune and not lines and not skipped:
            # rather the output of a program that failed than an export without documents
            raise UsageError(
                f"{self._name} has no lines, and --prune would delete all documents of the source",
                "check the program that writes them; `headrace source delete` deletes a source",
            )
        prune = self._prune and not skipped
        kept = frozenset[str]() if prune else AllBut.of(deleted)
        return Listing(files, skipped, kept=kept, with_details=True, problems=problems)

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of documents by their uri."""
        longest = _longest(sizes)
        with self._opened() as file:

            def read(uri: str, _: str) -> Content:
                file.seek(self._offsets[uri])
                raw = file.readline(longest + 1)
                try:
                    line = _parsed(raw, longest)
                    fingerprint = self._fingerprint(line, raw)
                except _InvalidLine as error:
                    raise UsageError(
                        f"{self._name} changed while it was read: {error}", "import it again"
                    ) from None
                return Content(self._body(line, sizes.of(uri) + 1), fingerprint, line.details)

            yield read

    def _lines(self, longest: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield number, offset and bytes of each line that is not blank."""
        number, offset = 0, 0
        try:
            with self._opened() as file:
                file.seek(0)
                while raw := file.readline(longest + 1):
                    number += 1
                    if raw.strip():
                        yield number, offset, raw
                    while raw and not raw.endswith(b"\n"):
                        raw = file.readline(longest + 1)  # the rest of a line that is too long
                    offset = file.tell()
        except OSError as error:
            raise UsageError(f"{self._name} can't be read: {error.strerror}") from None

    def _fingerprint(self, line: _Line, raw: bytes) -> str:
        digest = hashlib.sha256(raw.strip()).hexdigest()
        if line.path is None:
            return digest
        try:
            return f"{digest}.{fingerprint_of(self._file_of(line.path).stat())}"
        except OSError as error:
            raise _InvalidLine(f"{line.path} can't be read: {error.strerror}") from None

    def _file_of(self, path: str) -> Path:
        """Path of a file that a line names; lines must not reach outside their folder."""
        file = (self._folder / path).resolve()
        if PurePosixPath(path).is_absolute() or not file.is_relative_to(self._folder):
            raise _InvalidLine(f"path {path!r} is not below {self._folder}")
        return file

    def _body(self, line: _Line, most_bytes: int) -> bytes:
        """Content of a line; raises OSError if its file can't be read."""
        if line.path is not None:
            return read_regular(self._file_of(line.path), most_bytes)
        if line.encoded is not None:
            return b64decode(line.encoded)
        return (line.content or "").encode()


def _kept_input() -> Callable[[], BinaryIO]:
    """Copy standard input to a file without a name, which ends with the process."""
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        descriptor = os.dup(file.fileno())
    return lambda: os.fdopen(os.dup(descriptor), "rb")


def _require_first(uri: str, lines: Mapping[str, int]) -> None:
    if uri in lines:
        raise _InvalidLine(f"{uri} is on line {lines[uri]} already")


def _longest(sizes: SizeLimits) -> int:
    return _ESCAPED * max(sizes.text_bytes, sizes.binary_bytes) + _OTHER_BYTES


def _parsed(raw: bytes, longest: int) -> _Line:
    """Check a line; raises _InvalidLine with what is wrong."""
    if len(raw) > longest:
        raise _InvalidLine(f"it has more than {longest:,} bytes")
    try:
        values = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _InvalidLine(f"it is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise _InvalidLine("it is not a JSON object")
    unknown = sorted(values.keys() - _FIELDS)
    if unknown:
        raise _InvalidLine(f"{unknown[0]!r:.64} is not one of {', '.join(sorted(_FIELDS))}")
    bodies = [name for name in _BODIES if values.get(name) is not None]
    for name in bodies:
        if not isinstance(values[name], str):
            raise _InvalidLine(f"{name} is not a string")
    change = values.get("change", "upsert")
    if change not in ("upsert", "delete"):
        raise _InvalidLine("change is neither upsert nor delete")
    if len(bodies) != (change == "upsert"):
        raise _InvalidLine(
            f"it needs {'one' if change == 'upsert' else 'none'} of {', '.join(_BODIES)}"
        )
    return _Line(
        uri=_checked(values, change).uri,
        is_deleted=change == "delete",
        details=Details(**{name: values[name] for name in _DETAILS if values.get(name)}),
        content=_text(values.get("content")),
        encoded=_base64(values.get("content_base64")),
        path=values.get("path"),
    )


def _checked(values: Mapping[str, Any], change: str) -> DocumentChange:
    """Fields of a line as those of an event; its content is checked when it is read."""
    data = {name: value for name, value in values.items() if name not in _BODIES}
    content = {} if change == "delete" else {"content": ""}
    try:
        return DocumentChange.model_validate({"project": "any", **data, **content})
    except ValidationError as error:
        raise _InvalidLine(first_problem(error)) from None


def _text(text: str | None) -> str | None:
    if text is not None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _InvalidLine("content has half of a surrogate pair") from None
    return text


def _base64(encoded: str | None) -> str | None:
    if encoded is not None:
        try:
            b64decode(encoded, validate=True)
        except ValueError:
            raise _InvalidLine("content_base64 is not base64") from None
    return encoded

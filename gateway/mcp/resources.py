"""Documents as resources: addresses, their completions, and contents of a bounded size.

``headrace://PROJECT/URI`` is a document, and ``?start=10&end=20`` after it selects lines. The uri
is percent-encoded as far as its characters have a meaning in an address (``%``, ``?``, ``#``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from mcp.shared.path_security import contains_path_traversal, is_absolute_path
from mcp_types import Resource, ResourceTemplate, TextResourceContents

from gateway.mcp import results, tools
from gateway.mcp.backends import Backend, Text
from gateway.mcp.results import Refusal

__all__ = [
    "MOST_BYTES",
    "RESOURCES",
    "STATUS",
    "TEMPLATES",
    "Address",
    "complete",
    "parse",
    "read",
]

_SCHEME = "headrace://"
STATUS = f"{_SCHEME}status"
"""Address of the size and freshness of a project."""
MOST_BYTES = 60_000
"""Longest text of a resource: as much as ``read`` shows with its largest budget."""

RESOURCES = (
    Resource(
        name="status",
        uri=STATUS,
        title="Status",
        description="Size and freshness of the index.",
        mime_type="text/plain",
    ),
)
"""Resources with a fixed address; documents have those of ``TEMPLATES``."""
TEMPLATES = (
    ResourceTemplate(
        name="document",
        uri_template=f"{_SCHEME}{{project}}/{{+uri}}",
        title="Document",
        description="Text of a document. A long one is cut, with the address of its rest.",
    ),
    ResourceTemplate(
        name="lines",
        uri_template=f"{_SCHEME}{{project}}/{{+uri}}{{?start,end}}",
        title="Lines of a document",
        description="Lines start to end of a document, counted from 1.",
    ),
)
"""Templates of the addresses of documents."""

_MEDIA_TYPES = {"markdown": "text/markdown", "rst": "text/x-rst", "openapi": "application/yaml"}
_USUAL_MEDIA_TYPE = "text/plain"
_LINE = re.compile(r"[1-9]\d{0,8}")
_LONGEST_ADDRESS = 8_192
_LONGEST_URI = 2_048
_SHOWN = 200
_MOST_COMPLETIONS = 100
_ENCODED = frozenset("%?#")
_READ = "open such a document with the tool `read`"


@dataclass(frozen=True, slots=True)
class Address:
    """Lines ``first`` to ``last`` (None: the end) of a document, or the status if ``uri`` is ''."""

    project: str
    uri: str = ""
    first: int = 1
    last: int | None = None

    def __str__(self) -> str:
        """Format as ``parse`` reads it. A uri that is a URL itself is encoded as one segment."""
        if not self.uri:
            return STATUS
        lines = {"start": self.first if self.first > 1 else None, "end": self.last}
        query = "&".join(f"{name}={line}" for name, line in lines.items() if line is not None)
        uri = quote(self.uri, safe="" if "//" in self.uri else "/")
        return f"{_SCHEME}{self.project}/{uri}{query and '?'}{query}"


def parse(text: str, project: str | None) -> Address:
    """Parse the address of a resource for a caller with this project; None: it may choose.

    Raises:
        Refusal: it is not such an address, or is one of another project.
    """
    path, mark, query = text.partition("?")
    named, slash, encoded = path.removeprefix(_SCHEME).partition("/")
    if text == STATUS:
        return Address(project or tools.USUAL_PROJECT)
    if not text.startswith(_SCHEME) or not (named and slash and encoded):
        raise Refusal(
            "NotFound",
            f"there is no resource {text[:_SHOWN]!r}",
            f"use {TEMPLATES[0].uri_template} or {STATUS}",
        )
    if len(text) > _LONGEST_ADDRESS or "#" in text:
        raise Refusal(
            "InvalidArguments",
            f"{text[:_SHOWN]!r} is not the address of a document",
            f"write at most {_LONGEST_ADDRESS:,} characters, and `#` as %23",
        )
    first, last = _lines_of(query) if mark else (1, None)
    return Address(project_of(unquote(named), project), _uri_of(encoded), first, last)


def project_of(named: str, project: str | None) -> str:
    """Project that a request names, if it is that of the caller; None: the caller may choose.

    Raises:
        Refusal: it is another one.
    """
    if project is not None and named != project:
        raise Refusal(
            "UnknownProject", f"there is no project {named[:_SHOWN]!r}", f"use {project!r}"
        )
    return named


def _uri_of(encoded: str) -> str:
    """Decode the uri of a document. The same paths are refused as by servers of files."""
    try:
        uri = unquote(encoded, errors="strict")
        uri.encode()
    except UnicodeError:
        raise Refusal(
            "InvalidArguments", f"{encoded[:_SHOWN]!r} is not UTF-8", "encode the uri in UTF-8"
        ) from None
    if not _is_safe(uri):
        raise Refusal("InvalidArguments", f"{uri[:_SHOWN]!r} is not a path below a project", _READ)
    return uri


def _is_safe(uri: str) -> bool:
    return not ("\0" in uri or contains_path_traversal(uri) or is_absolute_path(uri))


def _lines_of(query: str) -> tuple[int, int | None]:
    lines: dict[str, int | None] = {"start": None, "end": None}
    for pair in query.split("&"):
        name, _, number = pair.partition("=")
        if lines.get(name, 0) is not None or (number and not _LINE.fullmatch(number)):
            raise Refusal(
                "InvalidArguments",
                f"{pair[:_SHOWN]!r} does not select lines",
                "write ?start=10&end=20, and a `?` of the uri as %3F",
            )
        lines[name] = int(number) if number else None
    first, last = lines["start"] or 1, lines["end"]
    if last is not None and last < first:
        raise Refusal(
            "InvalidArguments", f"line {last} is before line {first}", "write start before end"
        )
    return first, last


async def read(backend: Backend, address: Address, asked: str) -> list[TextResourceContents]:
    """Read the resource of an address; its contents have the address that was asked for.

    A text of over ``MOST_BYTES`` is cut at a line end. A note follows it, under the address of the
    rest.
    """
    if not address.uri:
        status = results.render(results.status_object(await backend.status(address.project)))
        return [TextResourceContents(uri=asked, mime_type=_USUAL_MEDIA_TYPE, text=status)]
    document = await backend.document(address.project, address.uri)
    lines = await backend.read(address.project, address.uri, address.first, address.last)
    text = _beginning(lines.text)
    contents = [
        TextResourceContents(
            uri=asked, mime_type=_media_type(document.kind, document.uri), text=text
        )
    ]
    if len(text) < len(lines.text):
        contents.append(_note(address, lines, text))
    return contents


def _media_type(kind: str, uri: str) -> str:
    if kind == "openapi" and uri.endswith(".json"):
        return "application/json"
    return _MEDIA_TYPES.get(kind, _USUAL_MEDIA_TYPE)


def _beginning(text: str) -> str:
    """Leading lines of at most ``MOST_BYTES``, or a part of the first one if it is longer."""
    encoded = text.encode()
    if len(encoded) <= MOST_BYTES:
        return text
    part = encoded[: MOST_BYTES + 1].decode(errors="ignore")
    end = part.rfind("\n")
    return part[:end] if end > 0 else encoded[:MOST_BYTES].decode(errors="ignore")


def _note(address: Address, lines: Text, text: str) -> TextResourceContents:
    """Note after a text that is the beginning of ``lines``: its end, and the rest's address."""
    shown = lines.first + text.count("\n")
    cut = "after" if lines.text[len(text)] == "\n" else "within"
    rest = f"the document has {lines.total} lines"
    uri = str(address)
    if shown < lines.last:
        uri = str(Address(address.project, address.uri, shown + 1, address.last))
        rest = f"lines {shown + 1}-{lines.last} of {lines.total} are {uri}"
    return TextResourceContents(
        uri=uri,
        mime_type=_USUAL_MEDIA_TYPE,
        text=f"cut {cut} line {shown}, at {MOST_BYTES:,} bytes; {rest}",
    )


async def complete(backend: Backend, project: str, typed: str) -> tuple[list[str], bool]:
    """Complete the variable ``uri`` of the templates: values, and whether there are more."""
    under = unquote(typed)
    if len(under) > _LONGEST_URI or "\0" in under:  # no uri is like this
        return [], False
    page = await backend.documents(
        tools.List(project=project, under=under, limit=_MOST_COMPLETIONS)
    )
    uris = dict.fromkeys(document.uri for document in page.documents)
    return [_value_of(uri) for uri in uris if _is_safe(uri)], page.next is not None


def _value_of(uri: str) -> str:
    """Value of the variable ``uri``, which hosts expand without encoding `%`, `?` and `#`."""
    return uri if _ENCODED.isdisjoint(uri) else quote(uri, safe="" if "//" in uri else "/")

"""Addresses of documents, and texts that are too long for a resource."""

from __future__ import annotations

import random

import pytest
from mcp.shared.uri_template import UriTemplate

from gateway.mcp.resources import (
    MOST_BYTES,
    TEMPLATES,
    Address,
    complete,
    parse,
    read,
)
from gateway.mcp.results import Refusal
from tests.support.mcp_backends import FixedBackend

URIS = [
    "docs/herons.md",
    "docs/white owls.md",
    "docs/100%25.md",
    "docs/100%.md",
    "docs/why?.md",
    "docs/#2.md",
    "日本/naïve.md",
    "..hidden/a..b.md",
    "https://example.org//x/../y?q=1&start=5#top",
    "mailto:heron@example.org",
    "a/b/../c",
]


@pytest.mark.parametrize("uri", URIS)
@pytest.mark.parametrize("lines", [(1, None), (3, None), (1, 9), (3, 9)])
def test_an_address_is_read_as_it_was_written(uri: str, lines: tuple[int, int | None]) -> None:
    address = Address("docs", uri, *lines)
    assert parse(str(address), "docs") == address
    assert parse(str(address), None) == address


@pytest.mark.parametrize("project", ["docs", None])
def test_the_address_of_the_status(project: str | None) -> None:
    assert parse("headrace://status", project) == Address(project or "default")
    assert str(Address("docs")) == "headrace://status"
    assert parse("headrace://status/a.md", None) == Address("status", "a.md")


def test_a_url_may_be_written_without_encoding() -> None:
    address = parse("headrace://docs/https://example.org//x?start=2", "docs")
    assert address == Address("docs", "https://example.org//x", 2)


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("headrace://other/a.md", "UnknownProject", "no project 'other'"),
        ("headrace://%6Fther/a.md", "UnknownProject", "no project 'other'"),
        ("headrace://docs/../other/a.md", "InvalidArguments", "not a path below"),
        ("headrace://docs/a/%2E%2E/%2e%2e/b", "InvalidArguments", "not a path below"),
        ("headrace://docs/..%2Fother", "InvalidArguments", "not a path below"),
        ("headrace://docs/..%5Cother", "InvalidArguments", "not a path below"),
        ("headrace://docs//etc/passwd", "InvalidArguments", "not a path below"),
        ("headrace://docs/%2Fetc/passwd", "InvalidArguments", "not a path below"),
        ("headrace://docs/C:/windows", "InvalidArguments", "not a path below"),
        ("headrace://docs/a%00.md", "InvalidArguments", "not a path below"),
        ("headrace://docs/%ff.md", "InvalidArguments", "not UTF-8"),
        ("headrace://docs/a.md#top", "InvalidArguments", "not the address"),
        ("headrace://docs/" + "a" * 9_000, "InvalidArguments", "not the address"),
        ("headrace://docs/a.md?page=1", "InvalidArguments", "'page=1' does not select"),
        ("headrace://docs/a.md?start=1&start=2", "InvalidArguments", "'start=2' does not"),
        ("headrace://docs/a.md?start=0", "InvalidArguments", "'start=0' does not"),
        ("headrace://docs/a.md?end=1e9", "InvalidArguments", "'end=1e9' does not"),
        ("headrace://docs/a.md?start=9&end=8", "InvalidArguments", "line 8 is before line 9"),
        ("headrace://status?project=other", "NotFound", "no resource"),
        ("headrace://docs", "NotFound", "no resource"),
        ("headrace://docs/", "NotFound", "no resource"),
        ("headrace:///a.md", "NotFound", "no resource"),
        ("file:///etc/passwd", "NotFound", "no resource"),
        ("", "NotFound", "no resource"),
    ],
)
def test_other_addresses_are_refused_with_a_remedy(text: str, code: str, reason: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse(text, "docs")
    assert refused.value.code == code
    assert reason in refused.value.error["detail"]
    assert refused.value.error["remedy"]
    assert len(str(refused.value.error)) < 1_000


async def test_every_completion_expands_to_its_document() -> None:
    """A uri that is not an address is left out; it is never the address of another document."""
    backend = FixedBackend()
    backend.texts = dict.fromkeys([*URIS, "../up.md", "/etc/passwd", "a.md"], "")
    values, has_more = await complete(backend, "docs", "")
    assert has_more is False
    for template in TEMPLATES:
        expand = UriTemplate.parse(template.uri_template).expand
        addresses = [expand({"project": "docs", "uri": value}) for value in values]
        assert [parse(text, "docs").uri for text in addresses] == sorted([*URIS, "a.md"])


@pytest.mark.parametrize("typed", ["docs/why", "docs/why?", "docs/why%3F", "docs%2Fwhy"])
async def test_a_beginning_may_be_encoded(typed: str) -> None:
    backend = FixedBackend()
    backend.texts = dict.fromkeys(URIS, "")
    assert await complete(backend, "docs", typed) == (["docs/why%3F.md"], False)


async def test_completions_are_at_most_a_hundred() -> None:
    backend = FixedBackend()
    backend.texts = {f"docs/{number:03}.md": "" for number in range(101)}
    values, has_more = await complete(backend, "docs", "docs/")
    assert (len(values), has_more) == (100, True)
    assert await complete(backend, "docs", "docs/" + "x" * 5_000) == ([], False)


@pytest.mark.parametrize("seed", range(20))
async def test_a_long_document_is_read_in_parts(seed: int) -> None:
    """The parts under the addresses of the notes are the whole document, each within the limit."""
    random_numbers = random.Random(seed)
    lines = [
        "日本 heron " * random_numbers.randrange(200) for _ in range(random_numbers.randrange(900))
    ]
    backend = FixedBackend()
    backend.texts = {"a.md": "\n".join(lines)}
    parts: list[str] = []
    asked = "headrace://docs/a.md"
    while asked:
        contents = await read(backend, parse(asked, "docs"), asked)
        assert contents[0].uri == asked
        assert len(contents[0].text.encode()) <= MOST_BYTES
        parts.append(contents[0].text)
        asked = contents[1].uri if len(contents) > 1 else ""
        assert not asked or asked in contents[1].text
    assert "\n".join(parts) == backend.texts["a.md"]


@pytest.mark.parametrize("count", [MOST_BYTES - 1, MOST_BYTES, MOST_BYTES + 1])
async def test_a_text_of_the_limit_is_whole(count: int) -> None:
    backend = FixedBackend()
    backend.texts = {"a.md": "a" * count + "\nb"}
    contents = await read(backend, Address("docs", "a.md", 1, 1), "asked")
    assert (len(contents) == 1) == (count <= MOST_BYTES)
    assert contents[0].text == "a" * min(count, MOST_BYTES)


async def test_a_line_that_is_too_long_is_named() -> None:
    """The note says that the cut is within a line, and where the next line is."""
    backend = FixedBackend()
    backend.texts = {"a.md": "\n" + "é" * MOST_BYTES + "\nlast"}
    text, note = await read(backend, Address("docs", "a.md"), "asked")
    assert len(text.text.encode()) == MOST_BYTES - 1
    assert note.text == (
        "cut within line 2, at 60,000 bytes; lines 3-3 of 3 are headrace://docs/a.md?start=3"
    )
    text, note = await read(backend, Address("docs", "a.md", 2, 2), "asked")
    assert note.text == "cut within line 2, at 60,000 bytes; the document has 3 lines"


@pytest.mark.parametrize(
    ("kind", "uri", "media_type"),
    [
        ("markdown", "a.md", "text/markdown"),
        ("rst", "a.rst", "text/x-rst"),
        ("openapi", "api.json", "application/json"),
        ("openapi", "api.yaml", "application/yaml"),
        ("code", "a.html", "text/plain"),
        ("conversation", "a.txt", "text/plain"),
    ],
)
async def test_the_media_type_is_that_of_the_kind(kind: str, uri: str, media_type: str) -> None:
    """A publisher cannot choose it, so no document is a page that a host would show."""
    backend = FixedBackend()
    backend.texts, backend.kind = {uri: "x"}, kind
    [content] = await read(backend, Address("docs", uri), "asked")
    assert content.mime_type == media_type

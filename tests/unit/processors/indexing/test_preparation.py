"""Resolution of changes: the content of a document, its kind, and the limit that holds for it."""

from __future__ import annotations

import hashlib

import pytest

from content.detection import SizeLimits
from events.models import ContentReference, DocumentChange, DocumentChanged, Kind
from events.names import LogPosition
from events.streams.changes import LoggedChange
from processors.indexing.preparation import Failure, ResolvedDocument, Resolver
from runtime.errors import LimitExceeded

SIZES = SizeLimits(text_bytes=10, binary_bytes=30)


async def resolved(
    content: bytes, uri: str, kind: Kind | None = None
) -> tuple[list[ResolvedDocument], list[Failure], int]:
    """Resolve a content that is published by reference, and count the fetches."""
    fetches = 0

    async def fetch(project: str, sha256: str) -> bytes:
        nonlocal fetches
        fetches += 1
        return content

    reference = ContentReference(
        sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content)
    )
    change = DocumentChange(project="p", uri=uri, content_ref=reference, kind=kind)
    logged = LoggedChange(LogPosition(1, 0), DocumentChanged(data=change))
    documents, failures = await Resolver(fetch, SIZES).resolve([logged])
    return documents, failures, fetches


@pytest.mark.parametrize(
    ("uri", "kind"), [("a.py", None), ("a.md", None), ("a.pdf", Kind.TEXT), ("a", Kind.CODE)]
)
async def test_a_long_text_is_refused_without_a_fetch(uri: str, kind: Kind | None) -> None:
    """The limit of texts holds for a document that can't be of another format."""
    documents, [failure], fetches = await resolved(b"x" * 11, uri, kind)
    assert not documents
    assert isinstance(failure.error, LimitExceeded)
    assert "HEADRACE_MAX_DOCUMENT_BYTES" in failure.error.remedy
    assert fetches == 0


@pytest.mark.parametrize("uri", ["a", "a.txt", "a.pdf"])
async def test_content_that_may_be_binary_is_fetched_up_to_the_larger_limit(uri: str) -> None:
    """The bytes decide; a text is then held to its own limit."""
    documents, failures, fetches = await resolved(b"%PDF-1.7 and more", uri)
    assert [(document.kind, document.content) for document in documents] == [
        ("pdf", b"%PDF-1.7 and more")
    ]
    assert not failures
    assert fetches == 1
    _, [failure], fetches = await resolved("é".encode() * 6, "a")
    assert isinstance(failure.error, LimitExceeded)
    assert fetches == 1


async def test_a_text_is_decoded() -> None:
    """The text of a reference has no byte order mark."""
    [document], _, _ = await resolved("\ufeffx = 1".encode(), "a.py")
    assert (document.kind, document.language, document.content) == ("code", "python", "x = 1")

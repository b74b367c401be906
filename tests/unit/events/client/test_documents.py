"""Changes that clients build from arguments."""

from __future__ import annotations

import pytest

from events.client.client import Client
from events.client.documents import DocumentMethods
from events.client.publisher import Receipt
from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Kind,
    content_hash,
)
from events.names import Lane
from runtime import protocol_limits
from runtime.errors import UsageError


class Recorder(DocumentMethods):
    """Keeps what a client would publish."""

    def __init__(self) -> None:
        self.published: list[tuple[DocumentChanged, Lane, bool]] = []
        self.kept: list[tuple[str, bytes]] = []

    async def publish(
        self,
        change: DocumentChange | DocumentChanged,
        lane: Lane = Lane.LIVE,
        *,
        durable: bool = False,
    ) -> Receipt:
        assert isinstance(change, DocumentChanged)
        self.published.append((change, lane, durable))
        return Receipt("live:0:1-0", change.id, duplicate=False)

    async def keep_content(self, project: str, content: str | bytes) -> ContentReference:
        assert isinstance(content, bytes)
        self.kept.append((project, content))
        return ContentReference(sha256=content_hash(content), size_bytes=len(content))


async def test_an_upsert_carries_all_that_it_was_given() -> None:
    client = Recorder()
    receipt = await client.upsert(
        "notes",
        "herons.md",
        "Herons nest in March.",
        title="Herons",
        kind=Kind.MARKDOWN,
        media_type="text/markdown",
        collections=["birds", "spring"],
        metadata={"page": 3, "draft": False},
        agent="ada",
        lane=Lane.BULK,
        durable=True,
        event_id="first",
    )
    [(event, lane, durable)] = client.published
    assert event.data == DocumentChange(
        project="notes",
        uri="herons.md",
        content="Herons nest in March.",
        title="Herons",
        kind=Kind.MARKDOWN,
        media_type="text/markdown",
        collections=("birds", "spring"),
        metadata={"page": 3, "draft": False},
        agent="ada",
    )
    assert (event.id, lane, durable) == ("first", Lane.BULK, True)
    assert receipt.event_id == "first"


async def test_a_rename_carries_all_that_it_was_given() -> None:
    client = Recorder()
    await client.rename(
        "notes",
        "birds/herons.md",
        "herons.md",
        "Herons nest in March.",
        title="Herons",
        kind=Kind.MARKDOWN,
        media_type="text/markdown",
        collections=["birds"],
        metadata={"page": 3},
        agent="ada",
        lane=Lane.BULK,
        durable=True,
        event_id="second",
    )
    [(event, lane, durable)] = client.published
    assert event.data == DocumentChange(
        project="notes",
        change="rename",
        uri="birds/herons.md",
        old_uri="herons.md",
        content="Herons nest in March.",
        title="Herons",
        kind=Kind.MARKDOWN,
        media_type="text/markdown",
        collections=("birds",),
        metadata={"page": 3},
        agent="ada",
    )
    assert (event.id, lane, durable) == ("second", Lane.BULK, True)


async def test_a_delete_names_the_document_alone() -> None:
    client = Recorder()
    await client.delete(
        "notes", "herons.md", agent="ada", lane=Lane.BULK, durable=True, event_id="third"
    )
    [(event, lane, durable)] = client.published
    assert event.data == DocumentChange(
        project="notes", uri="herons.md", change="delete", agent="ada"
    )
    assert (event.id, lane, durable) == ("third", Lane.BULK, True)


async def test_each_call_is_another_event() -> None:
    """Calls without an event id make separate events."""
    client = Recorder()
    for _ in range(2):
        await client.upsert("notes", "herons.md", "Herons nest in March.")
    assert len({event.id for event, _, _ in client.published}) == 2


async def test_an_argument_out_of_its_limits_is_named() -> None:
    """A caller that knows nothing of pydantic gets an error of Headrace, and nothing is published.

    The connection leads nowhere, and is not used.
    """
    async with Client.connect("redis://localhost:1/0") as client:
        with pytest.raises(UsageError, match="upsert: project: "):
            await client.upsert("No Project", "herons.md", "Herons")
        with pytest.raises(UsageError, match="rename: a rename needs two different uris"):
            await client.rename("notes", "herons.md", "herons.md", "Herons")
        with pytest.raises(UsageError, match="delete: id: "):
            await client.delete("notes", "herons.md", event_id="")
        with pytest.raises(UsageError, match="upsert: collections: "):
            await client.upsert("notes", "herons.md", "Herons", collections="birds")


@pytest.mark.parametrize(("size", "kept"), [(10, 0), (protocol_limits.INLINE_CONTENT_BYTES + 1, 1)])
async def test_bytes_travel_in_the_event_or_by_reference(size: int, kept: int) -> None:
    """A file that is not text is in the event in base64, or by its hash if it is too big."""
    client = Recorder()
    raw = b"\0" * size
    await client.upsert("notes", "plan.pdf", raw)
    [(change, _, _)] = client.published
    assert change.data.content is None
    assert client.kept == [("notes", raw)] * kept
    assert change.data.body == (None if kept else raw)
    assert change.data.fingerprint() == _fingerprint(raw)


def _fingerprint(raw: bytes) -> str:
    """Fingerprint of the same change if its content was stored before."""
    reference = ContentReference(sha256=content_hash(raw), size_bytes=len(raw))
    change = DocumentChange(project="notes", uri="plan.pdf", content_ref=reference)
    return change.fingerprint()

"""Upserts, renames and deletes of documents, for publishers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError

from events.client.publisher import Receipt
from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Kind,
    content_hash,
    first_problem,
)
from events.names import Lane
from runtime import protocol_limits
from runtime.errors import UsageError

__all__ = ["DocumentMethods", "bytes_fields"]


async def bytes_fields(
    content: bytes, keep: Callable[[bytes], Awaitable[ContentReference]]
) -> dict[str, Any]:
    """Return the fields of a ``DocumentChange`` for a content that is not text.

    ``keep`` stores a content that is too big for an event.
    """
    if len(content) <= protocol_limits.INLINE_CONTENT_BYTES:
        return {"content_base64": b64encode(content).decode()}
    return {"content_ref": await keep(content), "content_hash": content_hash(content)}


class DocumentMethods(ABC):
    """The part of a client that builds changes from arguments, and publishes them."""

    @abstractmethod
    async def publish(
        self,
        change: DocumentChange | DocumentChanged,
        lane: Lane = Lane.LIVE,
        *,
        durable: bool = False,
    ) -> Receipt:
        """Publish one change."""

    @abstractmethod
    async def keep_content(self, project: str, content: str | bytes) -> ContentReference:
        """Store content outside of events."""

    async def upsert(
        self,
        project: str,
        uri: str,
        content: str | bytes,
        *,
        title: str | None = None,
        kind: Kind | None = None,
        media_type: str | None = None,
        collections: Sequence[str] = (),
        metadata: Mapping[str, str | bool | int | float] | None = None,
        agent: str | None = None,
        lane: Lane = Lane.LIVE,
        durable: bool = False,
        expected_hash: str | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """Publish the content of a new or changed document.

        Args:
            project: the project of the document; its first document creates it.
            uri: name of the document in its project.
            content: the whole text, at most 4 Mi characters (see ``keep_content``), or the bytes of
                a document that is not text, such as a PDF file.
            title: title of the document, shown in results.
            kind: kind of the content; detected from ``media_type``, uri and text if None.
            media_type: media type of the content, such as ``text/markdown``.
            collections: names by which a query can filter.
            metadata: values by which a query can filter.
            agent: the only agent that can find the document; None shares it with all.
            lane: ``Lane.BULK`` for many changes, so that they don't delay urgent ones.
            durable: also keep the change in the client's outbox.
            expected_hash: SHA-256 (hex) of the content that the change replaces. If the document
                has another content, or does not exist, the outcome is ``document.rejected`` with
                the problem PreconditionFailed.
            event_id: id of the change, which is published once within 24 hours. The default is a
                new id for each call.

        Raises:
            UsageError: an argument is out of its limits.
            EventIdReused: another change was published with this ``event_id``.
            LimitExceeded, LogFull, Unavailable, ConfigurationError: see ``publish``.
        """
        return await self._publish_change(
            event_id,
            lane,
            durable=durable,
            change="upsert",
            project=project,
            uri=uri,
            content=content,
            title=title,
            kind=kind,
            media_type=media_type,
            collections=collections,
            metadata=metadata or {},
            agent=agent,
            expected_hash=expected_hash,
        )

    async def rename(
        self,
        project: str,
        uri: str,
        old_uri: str,
        content: str | bytes,
        *,
        title: str | None = None,
        kind: Kind | None = None,
        media_type: str | None = None,
        collections: Sequence[str] = (),
        metadata: Mapping[str, str | bool | int | float] | None = None,
        agent: str | None = None,
        lane: Lane = Lane.LIVE,
        durable: bool = False,
        expected_hash: str | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """Publish the new uri of a document, and its content, which may have changed too.

        ``old_uri`` is its uri until now. All other arguments and errors are those of ``upsert``.
        """
        return await self._publish_change(
            event_id,
            lane,
            durable=durable,
            change="rename",
            project=project,
            uri=uri,
            old_uri=old_uri,
            content=content,
            title=title,
            kind=kind,
            media_type=media_type,
            collections=collections,
            metadata=metadata or {},
            agent=agent,
            expected_hash=expected_hash,
        )

    async def delete(
        self,
        project: str,
        uri: str,
        *,
        agent: str | None = None,
        lane: Lane = Lane.LIVE,
        durable: bool = False,
        expected_hash: str | None = None,
        event_id: str | None = None,
    ) -> Receipt:
        """Publish the end of a document; arguments and errors are those of ``upsert``."""
        return await self._publish_change(
            event_id,
            lane,
            durable=durable,
            change="delete",
            project=project,
            uri=uri,
            agent=agent,
            expected_hash=expected_hash,
        )

    async def _publish_change(
        self, event_id: str | None, lane: Lane, *, durable: bool, **data: Any
    ) -> Receipt:
        identity = {} if event_id is None else {"id": event_id}
        content = data.get("content")
        if isinstance(content, bytes):
            del data["content"]
            data |= await bytes_fields(content, partial(self.keep_content, data["project"]))
        try:
            change = DocumentChange.model_validate(data)
            event = DocumentChanged(data=change, **identity)
        except ValidationError as error:
            raise UsageError(f"{data['change']}: {first_problem(error)}") from None
        return await self.publish(event, lane, durable=durable)

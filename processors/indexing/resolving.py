"""Step 1: load each document's content and determine its kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from events.change_log import LoggedChange
from events.models import DocumentChange, content_hash
from processors.indexing.chunking.detect import kind_of
from processors.indexing.documents import Failure, ResolvedDocument
from runtime.errors import LimitExceeded, MalformedEvent, Poison

__all__ = ["FetchContent", "Resolver"]

FetchContent = Callable[[str, str], Awaitable[str]]
"""Fetch content by project and SHA-256 in hex; raises ``UnsupportedContent`` if it is missing."""


class Resolver:
    """Fetches content that was published by reference."""

    def __init__(self, fetch: FetchContent, max_document_bytes: int) -> None:
        self._fetch = fetch
        self._max_document_bytes = max_document_bytes

    async def resolve(
        self, changes: Sequence[LoggedChange]
    ) -> tuple[list[ResolvedDocument], list[Failure]]:
        """Load the content of changes; those whose content cannot be used become failures."""
        resolved: list[ResolvedDocument] = []
        failures: list[Failure] = []
        for change in changes:
            try:
                resolved.append(await self._resolve(change))
            except Poison as error:
                failures.append(Failure(change, error))
        return resolved, failures

    async def _resolve(self, change: LoggedChange) -> ResolvedDocument:
        data = change.event.data
        content = await self._content(data)
        self._check_size(data, len(content.encode()))
        kind = data.kind or kind_of(data.uri, data.media_type, content)
        return ResolvedDocument(change, content, str(kind))

    async def _content(self, data: DocumentChange) -> str:
        if data.content_ref is None:
            return data.content or ""
        self._check_size(data, data.content_ref.size_bytes)
        content = await self._fetch(data.project, data.content_ref.sha256)
        if content_hash(content) != data.content_ref.sha256:
            raise MalformedEvent(
                f"{data.uri}: the stored content does not match the SHA-256 in content_ref"
            )
        return content

    def _check_size(self, data: DocumentChange, size: int) -> None:
        if size > self._max_document_bytes:
            raise LimitExceeded(
                f"{data.uri}: {size:,} bytes, over the limit of {self._max_document_bytes:,}; "
                "split it, or raise HEADRACE_MAX_DOCUMENT_BYTES"
            )

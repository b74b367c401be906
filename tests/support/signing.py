"""Keys of projects, and entries that are added without the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Names, Topic
from events.signatures import SigningKey
from runtime.settings import LOCAL_MODEL
from store.generations.catalog import Projects, Recipe
from store.keys.publisher_keys import KeyRegister
from store.postgres.pool import Database as OpenDatabase
from store.postgres.roles import OPERATOR
from tests.support.databases import Database

__all__ = ["add_key", "add_raw", "change", "register", "retire_key"]

LIVE = Names().stream(Topic.CHANGED_LIVE)


@asynccontextmanager
async def register(database: Database) -> AsyncIterator[KeyRegister]:
    """Keys of all projects, as an operator has them."""
    opened = await OpenDatabase.open(database.operator_url, role=OPERATOR)
    try:
        yield KeyRegister(opened, Projects(opened, Recipe(LOCAL_MODEL)))
    finally:
        await opened.close()


async def add_key(database: Database, project: str = "docs") -> SigningKey:
    """Add a key to a project."""
    key = SigningKey.new()
    async with register(database) as keys:
        await keys.add(project, key)
    return key


async def retire_key(database: Database, key: SigningKey, project: str = "docs") -> None:
    """Retire a key, even the last one."""
    async with register(database) as keys:
        await keys.retire(project, key.id, also_last=True)


def change(uri: str, content: str = "# Text\n", project: str = "docs") -> DocumentChanged:
    """Change of a document."""
    return DocumentChanged(data=DocumentChange(project=project, uri=uri, content=content))


async def add_raw(redis: Redis, event: bytes, **fields: str | bytes) -> str:
    """Add an entry with any content; returns its token."""
    entry: dict[Any, Any] = {"event": event, **fields}
    entry_id: Any = await redis.xadd(LIVE, entry)
    return LogPosition.of_entry(Lane.LIVE, 0, entry_id.decode()).token

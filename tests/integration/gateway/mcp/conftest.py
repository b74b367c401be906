"""A gateway beside a worker, with documents whose uris are hard to write in an address."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.support.databases import Database
from tests.support.gateways import Gateway, gateway
from tests.support.running import headrace

_TEXTS = {
    "birds/herons.md": "# Herons\n\nHerons nest in March.\n\nThey fish.",
    "birds/white owls 100%25.md": "Owls hunt at night.",
    "birds/naïve?draft#2.rst": "Swans\n=====\n\nSwans nest in April.",
    "https://example.org//birds?page=1#top": "Ducks dive.",
}


@pytest.fixture
async def served(redis_url: str, database: Database) -> AsyncIterator[Gateway]:
    """A gateway whose questions and changes a worker handles."""
    async with headrace(redis_url, database), gateway(redis_url, database) as running:
        yield running


@pytest.fixture
async def texts(served: Gateway) -> dict[str, str]:
    """Texts of the project ``docs`` by uri, all indexed; another project has a document too."""
    async with served.client() as client, served.client("other") as stranger:
        for uri, text in _TEXTS.items():
            await _put(client, uri, text)
        await _put(stranger, "birds/theirs.md", "Cranes dance.")
    return _TEXTS


async def _put(client: httpx2.AsyncClient, uri: str, text: str) -> None:
    response = await client.put(
        "document", params={"uri": uri}, content=text.encode(), headers={"Prefer": "wait=30"}
    )
    assert response.status_code == 200, response.text

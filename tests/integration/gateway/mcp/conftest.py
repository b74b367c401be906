"""Documents whose uris are hard to write in an address, which the tests of a module read."""

from __future__ import annotations

import httpx2
import pytest

from tests.support.gateways import Gateway

_TEXTS = {
    "birds/herons.md": "# Herons\n\nHerons nest in March.\n\nThey fish.",
    "birds/white owls 100%25.md": "Owls hunt at night.",
    "birds/naïve?draft#2.rst": "Swans\n=====\n\nSwans nest in April.",
    "https://example.org//birds?page=1#top": "Ducks dive.",
}


@pytest.fixture
def served(deployed: Gateway) -> Gateway:
    """The gateway, with the project ``docs``."""
    return deployed


@pytest.fixture(scope="module")
async def texts(deployed: Gateway) -> dict[str, str]:
    """Texts of the project ``docs`` by uri, all indexed; another project has a document too."""
    async with deployed.client() as client, deployed.client("other") as stranger:
        for uri, text in _TEXTS.items():
            await _put(client, uri, text)
        await _put(stranger, "birds/theirs.md", "Cranes dance.")
    return _TEXTS


async def _put(client: httpx2.AsyncClient, uri: str, text: str) -> None:
    response = await client.put(
        "document", params={"uri": uri}, content=text.encode(), headers={"Prefer": "wait=30"}
    )
    assert response.status_code == 200, response.text

"""Pages that describe the routes and the problems."""

from __future__ import annotations

import httpx2

from gateway.http.middleware import CONTENT_SECURITY_POLICY
from gateway.http.openapi import operations
from gateway.http.problems import STATUS
from tests.support.gateways import Gateway


async def test_the_pages_need_no_key_and_no_script(served: Gateway) -> None:
    """Every route and every problem is described; a problem's page names its remedy."""
    async with httpx2.AsyncClient(base_url=served.url, timeout=60) as client:
        document = (await client.get("/openapi.json")).json()
        pages = {path: await client.get(path) for path in ("/docs", "/problems")}
        for response in pages.values():
            assert response.status_code == 200
            assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert "<script" not in response.text
            assert "://" not in response.text
        for operation in operations(document):
            assert operation.name in pages["/docs"].text
        for error in STATUS:
            if error.__name__ != "HeadraceError":
                assert f"/problems/{error.__name__}" in pages["/problems"].text
        full = await client.get("/problems/LogFull")
        assert "503" in full.text
        assert "repeat the request" in full.text
        absent = await client.get("/problems/<script>")
        assert (absent.status_code, absent.json()["code"]) == (404, "NotFound")

"""Scrapes of a worker."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from runtime import metrics
from runtime.errors import ConfigurationError
from runtime.metrics_server import metrics_server


async def test_a_scrape_has_the_metrics_of_the_process() -> None:
    metrics.BUILD_INFO.set(1, version="1", revision="1", python="3")
    async with metrics_server("127.0.0.1", 0) as url, ClientSession() as session:
        async with session.get(url) as response:
            text = await response.text()
            assert response.content_type == "text/plain"
            assert "headrace_build_info{" in text
        headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with session.get(url, headers=headers) as response:
            assert response.content_type == "application/openmetrics-text"
            assert (await response.text()).endswith("# EOF\n")
        async with session.post(url) as response:
            assert response.status == 405
        async with session.get(url.removesuffix("metrics")) as response:
            assert response.status == 404


async def test_an_address_in_use_is_named() -> None:
    async with metrics_server("127.0.0.1", 0) as url:
        port = int(url.split(":")[2].partition("/")[0])
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}") as failure:
            async with metrics_server("127.0.0.1", port):
                pass
        assert "--metrics-port" in failure.value.remedy

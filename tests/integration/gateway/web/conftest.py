"""A browser that fails a test for every request to elsewhere, error and policy violation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import Opened, chromium, log_in, open_page
from tests.support.site import Contents, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of this machine; each test has a session of its own in it."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def opened(browser: Browser) -> Opened:
    """Function that serves contents and opens a page that is logged in."""

    @contextmanager
    def open_site(contents: Contents, *, login: bool = True, **options: Any) -> Iterator[Page]:
        with served(contents) as address, open_page(browser, address, **options) as page:
            if login:
                log_in(page)
            yield page

    return open_site

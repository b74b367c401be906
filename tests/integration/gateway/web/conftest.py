"""A browser that fails a test for every request to elsewhere, error and policy violation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from socket import create_server, socket
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.browser import (
    Opened,
    chromium,
    log_in,
    open_page,
    open_session,
    opened_again,
)
from tests.support.site import Contents, served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of this machine."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def listener() -> Iterator[socket]:
    """Port of the pages of all tests of a module."""
    with create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture(scope="module")
def session(browser: Browser, listener: socket) -> Iterator[BrowserContext]:
    """Session of the browser that tests without options share; its processes take most time."""
    with open_session(browser, f"http://127.0.0.1:{listener.getsockname()[1]}") as session:
        yield session


@pytest.fixture
def opened(browser: Browser, session: BrowserContext, listener: socket) -> Opened:
    """Function that serves contents and opens a page that is logged in."""

    @contextmanager
    def open_site(contents: Contents, *, login: bool = True, **options: Any) -> Iterator[Page]:
        if login and not options:
            with opened_again(session, listener, contents) as page:
                yield page
            return
        with served(contents) as address, open_page(browser, address, **options) as page:
            if login:
                log_in(page)
            yield page

    return open_site

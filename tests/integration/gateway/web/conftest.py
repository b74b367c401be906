"""A browser that fails a test for every request to elsewhere, error and policy violation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.browser import Opened, log_in, strict_page
from tests.support.site import Contents, served
from tests.support.waiting import patience

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = ["--disable-background-networking", "--no-first-run", "--disable-component-update"]


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Chromium of this machine."""
    paths = [path for name in BROWSERS if (path := shutil.which(name))]
    if not paths:
        pytest.skip("no Chromium is installed, so the pages were not tested")
    expect.set_options(timeout=patience(10) * 1000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=paths[0], chromium_sandbox=False, args=_ARGUMENTS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Browser) -> Opened:
    """Function that serves contents and opens a page that is logged in."""

    @contextmanager
    def open_page(
        contents: Contents,
        *,
        scheme: str = "light",
        script: bool = True,
        login: bool = True,
        width: int = 1200,
        allowed: str = "(?!)",
    ) -> Iterator[Page]:
        with served(contents) as address:
            context = browser.new_context(
                base_url=address,
                color_scheme="dark" if scheme == "dark" else "light",
                java_script_enabled=script,
                viewport={"width": width, "height": 900},
                permissions=["clipboard-read", "clipboard-write"],
            )
            with strict_page(context, address, allowed) as page:
                if login:
                    log_in(page)
                yield page

    return open_page

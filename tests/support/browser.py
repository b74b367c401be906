"""Pages in a browser: everything that must not happen fails the test."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from socket import socket

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from tests.support.site import API_KEY, COOKIE, Contents, served
from tests.support.waiting import patience

__all__ = [
    "Opened",
    "check_accessibility",
    "chromium",
    "log_in",
    "open_page",
    "open_session",
    "opened_again",
    "wait_for_script",
]

SHOTS = "HEADRACE_TEST_SHOTS"
"""Variable with the directory for screenshots; without it, none are made."""

_COOKIE_NAME = "__Host-headrace"
_LIMIT_SECONDS = 30.0
"""Limit of a wait; unlike that of ``eventually``, it does not follow a rising load."""
Opened = Callable[..., AbstractContextManager[Page]]

# the shell is the same engine without a browser's own pages, and takes half of the processor time
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--in-process-gpu",
    "--no-first-run",
    "--no-zygote",
    "--renderer-process-limit=1",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the Chromium of this machine; skip the test if there is none."""
    paths = [path for name in _NAMES if (path := shutil.which(name))]
    if not paths:
        pytest.skip("no Chromium is installed, so the pages were not tested")
    expect.set_options(timeout=patience(_LIMIT_SECONDS) * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=paths[0], chromium_sandbox=False, args=_ARGUMENTS
        )
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Browser,
    address: str,
    *,
    script: bool = True,
    width: int = 1200,
    allowed: str = "(?!)",
) -> Iterator[Page]:
    """Open a page of a new session, and fail in the end for anything that must not happen.

    ``allowed``: expression for messages in the console that are no defects.
    """
    with (
        open_session(browser, address, script=script, width=width) as context,
        _strict_page(context, address, allowed) as page,
    ):
        yield page


@contextmanager
def open_session(
    browser: Browser, address: str, *, script: bool = True, width: int = 1200
) -> Iterator[BrowserContext]:
    """A new session of the browser, whose paths are relative to an address."""
    context = browser.new_context(
        base_url=address,
        color_scheme="light",
        java_script_enabled=script,
        viewport={"width": width, "height": 900},
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(patience(_LIMIT_SECONDS) * 1000)
    yield context
    context.close()


@contextmanager
def _strict_page(context: BrowserContext, address: str, allowed: str = "(?!)") -> Iterator[Page]:
    """Open a page in a session, and fail in the end for anything that must not happen."""
    wrong: list[str] = []
    page = context.new_page()

    def check_console(kind: str, text: str) -> None:
        # a refused request is a part of tests of failures; everything else is a defect
        if kind in ("error", "warning") and not re.search(
            rf"Failed to load resource|{allowed}", text
        ):
            wrong.append(f"{kind}: {text}")

    page.on("console", lambda message: check_console(message.type, message.text))
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))

    def check_request(request: Request) -> None:
        if not request.url.startswith((f"{address}/", "data:")):
            wrong.append(f"request to {request.url}")

    context.on("request", check_request)
    yield page
    page.close()
    context.remove_listener("request", check_request)
    assert not wrong


@contextmanager
def opened_again(context: BrowserContext, listener: socket, contents: Contents) -> Iterator[Page]:
    """Serve contents on a port, and open a page of a session there that is logged in."""
    contents.open_session()
    with served(contents, listener) as address:
        secure = address.replace("http", "https")
        context.add_cookies([{"name": _COOKIE_NAME, "value": COOKIE, "url": secure}])
        with _strict_page(context, address) as page:
            page.goto("/ask")
            wait_for_script(page)
            yield page


def wait_for_script(page: Page) -> None:
    """Wait until htmx hears the form of the page to ask; it starts behind the load.

    What is typed earlier asks nothing, and a form that is sent earlier loads a page of its own.
    """
    page.locator("#ask[data-htmx-powered]").wait_for(state="attached")


def log_in(page: Page) -> None:
    """Log in by the form."""
    page.goto("/login")
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ask")


def check_accessibility(page: Page, name: str) -> None:
    """Assert that axe finds nothing in light colours, and no weak contrast in dark ones.

    A screenshot of each is kept if a directory is given.
    """
    _check_rules(page, f"{name}-light", {})
    page.emulate_media(color_scheme="dark")
    _check_rules(page, f"{name}-dark", {"runOnly": ["color-contrast"]})
    page.emulate_media(color_scheme="light")


def _check_rules(page: Page, name: str, options: dict[str, list[str]]) -> None:
    directory = os.environ.get(SHOTS)
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
    report = Axe().run(page, options={**options, "resultTypes": ["violations"]})
    assert report.violations_count == 0, report.generate_report()

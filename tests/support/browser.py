"""Pages in a browser: everything that must not happen fails the test."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page

from tests.support.site import API_KEY
from tests.support.waiting import patience

__all__ = ["Opened", "check_accessibility", "log_in", "strict_page"]

SHOTS = "HEADRACE_TEST_SHOTS"
"""Variable with the directory for screenshots; without it, none are made."""

Opened = Callable[..., AbstractContextManager[Page]]


@contextmanager
def strict_page(context: BrowserContext, address: str, allowed: str) -> Iterator[Page]:
    """Open a page, and fail in the end for anything that must not happen."""
    context.set_default_timeout(patience(10) * 1000)
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
    context.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((f"{address}/", "data:"))
            else wrong.append(f"request to {request.url}")
        ),
    )
    yield page
    context.close()
    assert not wrong


def log_in(page: Page) -> None:
    """Log in by the form."""
    page.goto("/login")
    page.get_by_label("API key").fill(API_KEY)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ask")


def check_accessibility(page: Page, name: str) -> None:
    """Assert that axe finds nothing; keep a screenshot if a directory is given."""
    directory = os.environ.get(SHOTS)
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
    report = Axe().run(page)
    assert report.violations_count == 0, report.generate_report()

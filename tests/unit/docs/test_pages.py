"""Links, paths and names on the pages lead to something."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from gateway.session import ACCESS_VARIABLES
from runtime.settings import Settings
from tests.support.forking import ROOT
from tests.support.pages import PAGES

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
FOLDERS = (*WHEEL["wheel"]["packages"], "clients", "docs", "examples", "tests", "tools")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./<>-]*)`")
FILE = re.compile(r"`([\w/]+\.(?:py|sql|yml|safetensors))`")
MODULE = re.compile(r"python -m ([\w.]+)")
SETTING = re.compile(r"HEADRACE_([A-Z_]+[A-Z])\b")
OF_OTHERS = {
    *("API_KEY", "URL", "MCP_RESULTS", "OWNER_PASSWORD"),
    *("TEST_SEEDS", "TEST_SHOTS", "TEST_QUERIES", "TEST_REQUESTS"),
}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors_of(page: Path) -> Iterator[str]:
    for heading in HEADING.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def files() -> list[str]:
    return [
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
    ]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_a_page_and_a_heading(page: str) -> None:
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in set(anchors_of(target)), link


@pytest.mark.parametrize("page", PAGES)
def test_paths_are_those_of_the_code(page: str) -> None:
    """A file that was moved is found on every page that names it."""
    text = text_of(page)
    for path in PATH.findall(text):
        assert (ROOT / path).exists() or "<" in path, path
    for name in FILE.findall(text):
        assert any(f"/{file}".endswith(f"/{name}") for file in files()), name
    for module in MODULE.findall(text):
        assert import_module(module), module


@pytest.mark.parametrize("page", PAGES)
def test_settings_on_the_pages_exist(page: str) -> None:
    """A reader who sets one that does not exist gets an error."""
    settings = {name.upper() for name in Settings.model_fields}
    passwords = {name.removeprefix("HEADRACE_") for name in ACCESS_VARIABLES}
    assert set(SETTING.findall(text_of(page))) <= settings | passwords | OF_OTHERS

"""Modules that the check of the direction of imports covers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]


def test_the_direction_of_imports_is_checked_in_every_module() -> None:
    """The checker leaves out folders without ``__init__.py``, and says nothing."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["importlinter"]["root_packages"]
    files = {
        path.relative_to(ROOT).with_suffix("")
        for package in packages
        for path in (ROOT / package).rglob("*.py")
    }
    modules = {".".join(path.parts).removesuffix(".__init__") for path in files}
    assert modules == grimp.build_graph(*packages, cache_dir=None).modules

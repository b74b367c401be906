"""Versions of Python and of the main packages, for bug reports."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from processors.reconciling.findings import Condition

__all__ = ["judge_packages"]

_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("headrace", "faust-streaming", "redis", "asyncpg", "pgvector", "openvino", "litellm")


def judge_packages() -> list[Condition]:
    """Judge the versions of Python and of the main packages."""
    return [_python(), _packages()]


def _python() -> Condition:
    text = platform.python_version()
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return Condition.problem("python", text, "run headrace with Python 3.11 or later")
    return Condition.ok("python", text)


def _packages() -> Condition:
    versions = {name: _version(name) for name in _PACKAGES}
    detail = ", ".join(f"{name} {text}" for name, text in versions.items() if text)
    missing = [name for name, text in versions.items() if text is None and name != "headrace"]
    if missing:
        cure = "install headrace with all its dependencies"
        return Condition.problem("packages", f"not installed: {', '.join(missing)}", cure)
    return Condition.ok("packages", detail)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

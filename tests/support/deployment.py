"""Parsed docker-compose.yml."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["COMPOSE"]

_yaml: Any = import_module("yaml")  # it has no types

COMPOSE: Any = _yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text())

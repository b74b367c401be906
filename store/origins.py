"""Conversion between a document's origin and the two columns that store it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from events.models import Origin

__all__ = ["columns_of", "origin_of"]


def origin_of(row: Mapping[str, Any]) -> Origin | None:
    """Origin in ``source_id`` and ``source_revision`` of a row, or None without a source."""
    if row["source_id"] is None:
        return None
    return Origin(source=row["source_id"], revision=row["source_revision"])


def columns_of(origin: Origin | None) -> tuple[str | None, int | None]:
    """Inverse of ``origin_of``."""
    return (None, None) if origin is None else (origin.source, origin.revision)

"""PDF: text, tables by rulings and by alignment, headings, fields and annotations."""

from __future__ import annotations

from content.extractors.pdf.assembly import extract

__all__ = ["extract"]

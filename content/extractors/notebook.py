"""Extractor of Jupyter notebooks, formats 3 and 4: Markdown cells, code, and outputs of text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from content.extractors.draft import Draft, cleaned, fence_mark
from content.rendition import Place, Rendition
from runtime.errors import Damaged, LimitExceeded

__all__ = ["extract"]

MOST_CELLS = 20_000
_MOST_OUTPUT_LINES = 40
_MOST_OUTPUT_CHARACTERS = 2_000
_MOST_HEADING_CHARACTERS = 1_000
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DATA_URI = re.compile(
    r"data:[\w.+-]{1,60}/[\w.+-]{1,60}(?:;[\w=.+-]{1,60})*;base64,[A-Za-z0-9+/=%]*"
)
_OBJECT = re.compile(r"\s*<[\w.]+[^\n]{0,200}>\s*")
"""Output that only names an object, such as ``<Figure size 432x288 with 1 Axes>``."""
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_UNDERLINE = re.compile(r" {0,3}(={2,}|-{2,})[ \t]*$")
_NOT_A_PARAGRAPH = re.compile(r" {4}|\t| {0,3}(?:[-*+>|]|\d{1,9}[.)])(?:\s|$)| {0,3}[>|]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")
_PUBLISH_CELLS = "publish it in parts"
_EXPORT = "save it again with Jupyter, and publish that"


def extract(raw: bytes) -> Rendition:
    """Return the cells in their order; each has the place ``cell=N``, counted from 1.

    Outputs are cut after 40 lines or 2,000 characters; images and HTML are left out.

    Raises:
        Damaged: the bytes are not JSON with cells.
        LimitExceeded: there are more than 20,000 cells, or more than 8 MiB of text.
    """
    notebook = _parse(raw)
    cells = _cells(notebook)
    if len(cells) > MOST_CELLS:
        raise LimitExceeded(f"the notebook has more than {MOST_CELLS:,} cells", _PUBLISH_CELLS)
    draft = Draft()
    language = _language(notebook)
    for number, cell in enumerate(cells, 1):
        _put_cell(draft, cell, language, Place(fragment=f"cell={number}"))
    return draft.rendition(_title(notebook) or _first_heading(draft))


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        notebook = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Damaged("the notebook is not JSON", _EXPORT) from error
    if not isinstance(notebook, dict):
        raise Damaged("the notebook is not a JSON object", _EXPORT)
    return notebook


def _cells(notebook: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Cells of format 4, or of the worksheets of format 3."""
    if "cells" not in notebook and "worksheets" not in notebook:
        raise Damaged("the notebook has no cells", _EXPORT)
    cells = _list(notebook.get("cells")) or [
        cell
        for worksheet in _list(notebook.get("worksheets"))
        for cell in _list(_dict(worksheet).get("cells"))
    ]
    return [_dict(cell) for cell in cells]


def _language(notebook: dict[str, Any]) -> str:
    metadata = _dict(notebook.get("metadata"))
    names = (
        _dict(metadata.get("language_info")).get("name"),
        _dict(metadata.get("kernelspec")).get("language"),
    )
    for name in names:
        if isinstance(name, str) and _LANGUAGE.fullmatch(name):
            return name.lower()
    return "python"


def _title(notebook: dict[str, Any]) -> str | None:
    title = _dict(notebook.get("metadata")).get("title")
    return title if isinstance(title, str) else None


def _first_heading(draft: Draft) -> str | None:
    return next((section.name for section in draft.sections if section.level == 1), None)


def _put_cell(draft: Draft, cell: dict[str, Any], language: str, place: Place) -> None:
    source = _text(cell.get("source", cell.get("input"))).strip("\n")
    kind = cell.get("cell_type")
    if kind == "code":
        own = cell.get("language")  # format 3 names it in each cell
        if isinstance(own, str) and _LANGUAGE.fullmatch(own):
            language = own.lower()
        _put_fence(draft, source, language, place)
        for output in _list(cell.get("outputs")):
            _put_output(draft, _dict(output), place)
    elif kind == "markdown":
        _put_markdown(draft, source, place)
    elif kind == "heading":
        level = cell.get("level")
        name = " ".join(source.split())
        if name:
            draft.heading(level if isinstance(level, int) and 1 <= level <= 6 else 1, name, place)
    else:
        _put_fence(draft, source, "", place)


def _put_markdown(draft: Draft, source: str, place: Place) -> None:
    """Append Markdown without embedded files. A fence ends with its cell at the latest."""
    draft.gap()
    mark = ""
    lines = cleaned(_DATA_URI.sub("", source)).split("\n")
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        fence = _FENCE.match(line)
        heading = None if mark else _heading(before, line, after)
        if heading:
            draft.section(*heading)
        if fence and not mark:
            mark = fence[1]
        elif fence and line.strip().startswith(mark) and not line.strip().strip(mark[0]):
            mark = ""
        draft.put(line, place)
    if mark:
        draft.put(mark, place)
    draft.gap()


def _heading(before: str, line: str, after: str) -> tuple[int, str] | None:
    """Level and name of a heading, with marks before it or underlined. Returns None for others."""
    if not line.strip() or len(line) > _MOST_HEADING_CHARACTERS:
        return None
    match = _ATX.match(line)
    if match:
        return (len(match[1]), match[2]) if match[2] else None
    underline = _UNDERLINE.match(after[:_MOST_HEADING_CHARACTERS])
    if underline and not before.strip() and not _NOT_A_PARAGRAPH.match(line):
        return 1 if underline[1][0] == "=" else 2, line.strip()
    return None


def _put_fence(draft: Draft, text: str, language: str, place: Place) -> None:
    if text.strip():
        mark = fence_mark(text)
        draft.block(f"{mark}{language}\n{text}\n{mark}", place)


def _put_output(draft: Draft, output: dict[str, Any], place: Place) -> None:
    text, is_markdown = _output_text(output)
    text = _TERMINAL_CODE.sub("", cleaned(text)).strip("\n")
    if not text.strip() or _OBJECT.fullmatch(text):
        return
    lines = text[:_MOST_OUTPUT_CHARACTERS].split("\n")[:_MOST_OUTPUT_LINES]
    shortened = "\n".join(lines)
    if len(shortened) < len(text):
        shortened += "\n…"
    if is_markdown:
        _put_markdown(draft, shortened, place)
    else:
        _put_fence(draft, shortened, "text", place)


def _output_text(output: dict[str, Any]) -> tuple[str, bool]:
    """Text of an output, and whether it is Markdown."""
    kind = output.get("output_type")
    if kind == "stream":
        return _text(output.get("text")), False
    if kind in {"error", "pyerr"}:
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}", False
    data = _dict(output.get("data")) or output
    markdown = _text(data.get("text/markdown"))
    if markdown.strip():
        return markdown, True
    return _text(data.get("text/plain")) or _text(data.get("text")), False


def _text(value: object) -> str:
    """Join the lines of a multi-line string, which is a string or a list of strings."""
    if isinstance(value, str):
        return value
    return "".join(_strings(value))


def _strings(value: object) -> Iterator[str]:
    return (part for part in _list(value) if isinstance(part, str))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

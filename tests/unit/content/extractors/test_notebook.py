"""Extraction of notebooks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from content.extractors.notebook import MOST_CELLS, extract
from runtime.errors import Damaged, LimitExceeded
from tests.support.renditions import (
    DATA,
    assert_well_formed,
    assert_withstands_damage,
    fragments,
)


def _notebook(*cells: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"nbformat": 4, "cells": cells, **fields}).encode()


def _code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": outputs}


def _markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source}


def test_cells_are_numbered_and_headings_are_sections() -> None:
    rendition = extract(_notebook(_markdown("# Title\n\ntext"), _code(["a = 1\n", "b = 2"])))
    assert rendition.lines == ("# Title", "", "text", "", "```python", "a = 1", "b = 2", "```")
    assert fragments(rendition)["text"] == "cell=1"
    assert fragments(rendition)["a = 1"] == "cell=2"
    assert [(section.row, section.level, section.name) for section in rendition.sections] == [
        (0, 1, "Title")
    ]
    assert rendition.title == "Title"


def test_an_underlined_heading_is_a_section() -> None:
    rendition = extract(_notebook(_markdown("Title\n=====\ntext\n\nPart\n---\n\n- item\n---")))
    assert [(section.level, section.name) for section in rendition.sections] == [
        (1, "Title"),
        (2, "Part"),
    ]


def test_the_language_of_the_kernel_marks_code() -> None:
    metadata = {"kernelspec": {"language": "R"}}
    assert extract(_notebook(_code("x <- 1"), metadata=metadata)).lines[0] == "```r"


def test_code_with_fences_keeps_its_lines() -> None:
    lines = extract(_notebook(_code('s = """\n```\n"""'))).lines
    assert lines == ("````python", 's = """', "```", '"""', "````")


def test_a_fence_that_a_cell_leaves_open_ends_with_it() -> None:
    rendition = extract(_notebook(_markdown("```\n# code"), _markdown("# Title")))
    assert rendition.lines == ("```", "# code", "```", "", "# Title")
    assert [section.name for section in rendition.sections] == ["Title"]


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ({"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n"]}, ["```text", "red", "```"]),
        (
            {"output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": ["…"]},
            ["```text", "KeyError: 'a'", "```"],
        ),
        (
            {"output_type": "execute_result", "data": {"text/html": "<b>", "text/plain": "3"}},
            ["```text", "3", "```"],
        ),
        (
            {"output_type": "display_data", "data": {"text/markdown": "**3**", "text/plain": "3"}},
            ["**3**"],
        ),
        ({"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo="}}, []),
        (
            {"output_type": "execute_result", "data": {"text/plain": "<Figure size 1x1 at 0x7f>"}},
            [],
        ),
    ],
)
def test_outputs_of_text_are_kept(output: dict[str, Any], lines: list[str]) -> None:
    rendition = extract(_notebook(_code("x", output)))
    assert [line for line in rendition.lines[3:] if line] == lines


def test_long_outputs_are_cut() -> None:
    output = {"output_type": "stream", "text": "\n".join(f"row {row}" for row in range(100))}
    lines = extract(_notebook(_code("x", output))).lines
    assert lines[-3:] == ("row 39", "…", "```")


def test_embedded_files_are_left_out() -> None:
    lines = extract(_notebook(_markdown("![plot](data:image/png;base64,iVBORw0KGgo=) text"))).lines
    assert lines == ("![plot]() text",)


def test_format_3_is_read_alike() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Part"},
        {"cell_type": "code", "input": "a", "language": "python", "outputs": [{"text": "1"}]},
    ]
    rendition = extract(json.dumps({"worksheets": [{"cells": cells}]}).encode())
    assert rendition.lines == (
        *("## Part", "", "```python", "a", "```"),
        *("", "```text", "1", "```"),
    )
    assert rendition.sections[0].level == 2


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"cells": '])
def test_other_bytes_are_damage(raw: bytes) -> None:
    with pytest.raises(Damaged):
        extract(raw)


def test_too_many_cells_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="20,000 cells"):
        extract(_notebook(*[{}] * (MOST_CELLS + 1)))


def test_text_over_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="8 MiB"):
        extract(_notebook(_markdown("x" * (8 << 20))))


def test_cells_of_other_types_than_expected_do_no_harm() -> None:
    notebook = _notebook(
        _code("x", {"output_type": 3, "data": [], "text": {"a": 1}}),
        {"cell_type": "heading", "level": "two", "source": ["\ud800", 5]},
        {"source": None},
        metadata=[],
    )
    assert_well_formed(extract(notebook))


def test_real_notebooks_are_extracted() -> None:
    for path in sorted((DATA / "notebook").glob("*.ipynb")):
        rendition = extract(path.read_bytes())
        assert_well_formed(rendition)
        assert rendition.title


def test_damaged_notebooks_are_extracted_or_refused() -> None:
    documents = [path.read_bytes() for path in sorted((DATA / "notebook").glob("*.ipynb"))]
    assert_withstands_damage(extract, documents, 300)

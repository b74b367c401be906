"""Paths of a JSON text whose end may be missing."""

from __future__ import annotations

import json

import pytest

from content.text_formats import json_outline

TEXT = '{"a": [{"b": "\\\\", "c": [true]}], "d": {"e": 5}}'


def test_paths_map_to_first_scalars() -> None:
    """Each path is listed once, with its first scalar; containers have none."""
    text = json.dumps([{"role": "user", "parts": [1, {"a": None}]}, {"role": "x", "b": {}}])
    assert json_outline(text) == {
        "": "",
        "[]": "",
        "[].role": "user",
        "[].parts": "",
        "[].parts[]": "1",
        "[].parts[].a": "null",
        "[].b": "",
    }


@pytest.mark.parametrize("length", range(len(TEXT)))
def test_any_beginning_has_an_outline(length: int) -> None:
    """The outline of a beginning has no path that the whole outline lacks."""
    assert json_outline(TEXT).keys() == {
        "",
        ".a",
        ".a[]",
        ".a[].b",
        ".a[].c",
        ".a[].c[]",
        ".d",
        ".d.e",
    }
    assert json_outline(TEXT[:length]).keys() <= json_outline(TEXT).keys()


def test_only_the_first_value_is_read() -> None:
    """Values on later lines are left out."""
    assert json_outline('{"a": 1}\n{"b": 2}') == {"": "", ".a": "1"}


@pytest.mark.parametrize("text", ["[" * 60_000, '{"a":' * 10_000, "]" * 9, ",:,", '"' * 99, ""])
def test_hostile_text_is_bounded(text: str) -> None:
    """Deep and broken text gives few paths."""
    assert len(json_outline(text)) <= 33

"""Trees of JSON and YAML with the lines of their mappings."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from content.extractors.openapi import tree
from content.extractors.openapi.tree import Tree, read
from runtime.errors import Damaged, LimitExceeded

JSON = """{
  "paths": {
    "/a\\"b": {"get": {"x": [1, {"y": "}"}], "n": -1.50, "e": {}}},
    "/c": {
      "post":
        {"deep": true,
         "none": null}
    }
  }
}
"""
YAML = """\
# comment
paths:
  /a:
    get:
      text: |
        one
        two

    post: {x: 1,
      y: [2]}

  # comment
  /b: &shared
    get:
      folded: >-
        three

        four
  /c: *shared
"""


def _at(read_tree: Tree, *keys: str) -> Any:
    value = read_tree.root
    for key in keys:
        assert isinstance(value, dict)
        value = value[key]
    return value


def test_json_is_read_with_lines_and_numbers_as_written() -> None:
    read_tree = read(JSON)
    assert read_tree.root == json.loads(JSON, parse_int=str, parse_float=str)
    assert read_tree.lines(_at(read_tree, "paths", '/a"b', "get")) == (3, 3)
    assert read_tree.lines(_at(read_tree, "paths", "/c")) == (4, 8)
    assert read_tree.lines(_at(read_tree, "paths", "/c", "post")) == (5, 7)


def test_yaml_is_read_with_lines() -> None:
    read_tree = read(YAML)
    assert read_tree.root == yaml.load(YAML, Loader=yaml.BaseLoader)  # noqa: S506 - makes strings only
    assert read_tree.lines(_at(read_tree, "paths", "/a")) == (3, 10)
    assert read_tree.lines(_at(read_tree, "paths", "/a", "get")) == (4, 7)
    assert read_tree.lines(_at(read_tree, "paths", "/a", "post")) == (9, 10)
    assert read_tree.lines(_at(read_tree, "paths", "/b")) == (13, 18)
    assert _at(read_tree, "paths", "/c") is _at(read_tree, "paths", "/b")


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "a: yes\nb: true\nc: 'true'\nd: 2024-03-01\ne: 1.10\nf:\ng: ~\nh: 010\n200: ok\n"
    assert read(text).root == {
        "a": "yes",
        "b": True,
        "c": "true",
        "d": "2024-03-01",
        "e": "1.10",
        "f": None,
        "g": None,
        "h": "010",
        "200": "ok",
    }


def test_merge_keys_fill_in_what_a_mapping_does_not_have() -> None:
    root = read("a: &a {x: 1, y: 2}\nb: &b {z: 3}\nc:\n  <<: [*a, *b]\n  y: 4\n").root
    assert isinstance(root, dict)
    assert {key: root["c"][key] for key in "xyz"} == {"x": "1", "y": "4", "z": "3"}


def test_json_with_a_trailing_comma_is_read_as_yaml() -> None:
    assert read('{"a": [1, 2,],}').root == {"a": ["1", "2"]}


def test_only_the_first_document_of_a_stream_counts() -> None:
    assert read("a: 1\n---\nb: 2\n").root == {"a": "1"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "}",
        '{"a": ',
        '{"a": "\\"\\"\\"',
        '{"a" 1 "b" 2',
        "a: [",
        "a: b: c",
        "{[1]: 2}",
        "a: *missing",
        "a: &a [*a]",
        "\x07",
    ],
)
def test_damaged_texts_are_refused(text: str) -> None:
    with pytest.raises(Damaged, match=r"can't be read"):
        read(text)


@pytest.mark.parametrize("text", ["[" * 300 + "]" * 300, "- " * 300 + "a"])
def test_depth_is_bounded(text: str) -> None:
    with pytest.raises(LimitExceeded, match="200 levels"):
        read(text)


@pytest.mark.parametrize("text", ["[" + "1," * 30 + "1]", "- 1\n" * 31])
def test_values_are_bounded(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    read(text)
    monkeypatch.setattr(tree, "MOST_NODES", 30)
    with pytest.raises(LimitExceeded, match="30 values"):
        read(text)


def test_merged_keys_count_as_values(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &a {x: 1, y: 2}\n" + "".join(f"b{n}:\n  <<: *a\n" for n in range(20))
    read(text)
    monkeypatch.setattr(tree, "MOST_NODES", 70)
    with pytest.raises(LimitExceeded, match="70 values"):
        read(text)

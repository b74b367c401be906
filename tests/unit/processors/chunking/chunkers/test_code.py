"""Chunks of source code: functions and classes."""

from __future__ import annotations

import pytest

from processors import chunking
from processors.chunking import Chunk, Source
from tests.support.chunking import counter, cut

FILLER = "value = compute(first, second, third) + {}"


def filler(indent: str, many: int = 30, end: str = "") -> str:
    return "".join(f"{indent}{FILLER.format(n)}{end}\n" for n in range(many))


def holding(chunks: list[Chunk], text: str) -> Chunk:
    return next(one for one in chunks if text in one.content)


TYPESCRIPT = (
    "export class Foo {{\n  one(): number {{\n{}  }}\n"
    "  // about two\n  two(): void {{\n{}  }}\n}}\n"
)


METHODS = {
    "a.py": (
        (
            "class Foo(Bar):\n    def one(self):\n{}\n"
            "    # about two\n    @cached\n    def two(self):\n{}"
        ),
        "Foo.two",
    ),
    "a.js": (
        "class Foo extends Bar {{\n  one() {{\n{}  }}\n  // about two\n  two() {{\n{}  }}\n}}\n",
        "Foo.two",
    ),
    "a.ts": (TYPESCRIPT, "Foo.two"),
    "a.tsx": (TYPESCRIPT, "Foo.two"),
    "a.java": (
        "class Foo {{\n  int one() {{\n{}  }}\n  // about two\n  int two() {{\n{}  }}\n}}\n",
        "Foo.two",
    ),
    "a.cs": (
        (
            "namespace N {{ class Foo {{\n  int one() {{\n{}  }}\n"
            "  // about two\n  int two() {{\n{}  }}\n}} }}\n"
        ),
        "N.Foo.two",
    ),
    "a.cpp": (
        "class Foo {{\n  int one() {{\n{}  }}\n  // about two\n  int two() {{\n{}  }}\n}};\n",
        "Foo::two",
    ),
    "a.rs": (
        "impl Foo {{\n  fn one() {{\n{}  }}\n  // about two\n  fn two() {{\n{}  }}\n}}\n",
        "Foo::two",
    ),
    "a.php": (
        (
            "<?php\nclass Foo {{\n  function one() {{\n{}  }}\n"
            "  // about two\n  function two() {{\n{}  }}\n}}\n"
        ),
        "Foo::two",
    ),
    "a.rb": (
        "class Foo < Bar\n  def one\n{}  end\n  # about two\n  def two\n{}  end\nend\n",
        "Foo.two",
    ),
    "a.go": (
        "package p\n\nfunc One() {{\n{}}}\n\n// about two\nfunc (f *Foo) two() {{\n{}}}\n",
        "Foo.two",
    ),
    "a.c": (
        "int one(void) {{\n{}}}\n\n// about two\nstatic int *two(int x) {{\n{}}}\n",
        "two",
    ),
    "a.sh": ("one() {{\n{}}}\n\n# about two\ntwo() {{\n{}}}\n", "two"),
    "a.kt": (
        "class Foo : B() {{\n  fun one() {{\n{}  }}\n  // about two\n  fun two() {{\n{}  }}\n}}\n",
        "Foo.two",
    ),
    "a.swift": (
        "class Foo: B {{\n  func one() {{\n{}  }}\n  /// about two\n  func two() {{\n{}  }}\n}}\n",
        "Foo.two",
    ),
    "a.scala": (
        "class Foo {{\n  def one = {{\n{}  }}\n  // about two\n  def two = {{\n{}  }}\n}}\n",
        "Foo.two",
    ),
    "a.dart": (
        (
            "class Foo extends Bar {{\n  int one() {{\n{}  }}\n"
            "  // about two\n  @override\n  int two() {{\n{}  }}\n}}\n"
        ),
        "Foo.two",
    ),
    "a.m": (
        (
            "@implementation Foo\n- (int)one {{\n{}}}\n"
            "// about two\n- (int)two:(int)x {{\n{}}}\n@end\n"
        ),
        "Foo.two:",
    ),
    "a.ex": (
        (
            "defmodule Foo do\n  def one do\n{}  end\n"
            '  @doc "about two"\n  def two(x) do\n{}  end\nend\n'
        ),
        "Foo.two",
    ),
    "a.lua": (
        "function M.one()\n{}end\n\n-- about two\nfunction M.two()\n{}end\n",
        "M.two",
    ),
}


@pytest.mark.parametrize("uri", METHODS)
def test_each_language_yields_qualified_symbols(uri: str) -> None:
    """Methods are separate chunks with qualified names and the comments above them."""
    template, symbol = METHODS[uri]
    end = "" if uri.endswith((".py", ".rb", ".ex")) else ";"
    body = "  echo first second third\n" * 40 if uri == "a.sh" else filler("    ", 11, end)
    chunks = cut(uri, template.format(body, body))
    second = holding(chunks, "about two")
    assert second.symbol == symbol
    assert "two" in second.content.replace("about two", "")


def test_a_method_carries_the_name_of_its_class() -> None:
    """The header of a method's chunk ends with the name of its class."""
    body = filler("        ", 12)
    content = f"class Foo(Bar):\n    def one(self):\n{body}\n    def two(self):\n{body}"
    assert holding(cut("a.py", content), "def two").header == "a.py > Foo"


def test_a_big_function_is_cut_between_statements() -> None:
    """A long function is cut between statements; later parts have its name in the header."""
    content = "def big(first):\n" + "".join(
        f"    call_{n}(\n        argument_one,\n        argument_two,\n    )\n" for n in range(40)
    )
    chunks = cut("a.py", content)
    assert len(chunks) > 1
    assert chunks[0].header == "a.py"
    for one in chunks[1:]:
        assert one.header == "a.py > big"
        assert one.symbol == "big"
        assert one.content.startswith("    call_")


def test_a_class_that_fits_is_one_chunk() -> None:
    (one,) = cut(
        "a.py", "class Foo:\n    def one(self):\n        pass\n\n    def two(self):\n        pass\n"
    )
    assert one.symbol == "Foo"


def test_small_neighbours_are_merged() -> None:
    """Two small functions share a chunk that names both."""
    (one,) = cut("a.py", "def one():\n    pass\n\n\ndef two():\n    pass\n")
    assert one.symbol == "one, two"


def test_broken_code_is_still_covered() -> None:
    """Code with syntax errors is still covered by chunks."""
    assert cut("a.py", "def broken(:\n" + filler("    ") + "class }{\n" + filler(""))


def test_a_bound_function_has_the_name_it_is_bound_to() -> None:
    """An arrow function has the name of its constant."""
    chunks = cut(
        "a.js", "export const handler = async (event) => {\n" + filler("  ", 20, ";") + "};\n"
    )
    assert {one.symbol for one in chunks} == {"handler"}


def test_a_shell_script_may_hold_any_character() -> None:
    """A shell script with any Unicode character is parsed without a crash."""
    (one,) = cut("a.sh", "greet() {\n  echo {\U000e10cc,🎉}\n}\n")
    assert one.symbol == "greet"


def lines_of(chunk: Chunk) -> int:
    return sum(bool(line.strip()) for line in chunk.content.split("\n"))


@pytest.mark.parametrize("many", range(22, 70, 3))
def test_no_part_of_a_function_has_less_than_four_lines(many: int) -> None:
    """A function of any length is cut into parts of four lines or more, and blanks do not count."""
    body = filler("    ", many).replace("+ 3\n", "+ 3\n\n\n")
    chunks = cut("a.py", f"\n\n\ndef big(first):\n{body}    if first:\n        return value\n")
    assert len(chunks) > 1
    assert min(map(lines_of, chunks)) >= 4


def test_lines_between_definitions_are_joined_to_a_neighbour() -> None:
    """A constant, or the first line of a class, shares a chunk with the next function."""
    content = (
        f"import one\n\n\ndef first():\n{filler('    ', 14)}\nLIMIT = 5\n\n\n"
        f"class Foo:\n    size = 3\n\n    def second(self):\n{filler('        ', 14)}\n"
        f"    def third(self):\n{filler('        ', 30)}\n    fourth = third\n"
    )
    chunks = cut("a.py", content)
    assert min(map(lines_of, chunks)) >= 4
    assert "def first" in holding(chunks, "import one").content
    assert "def second" in holding(chunks, "class Foo").content
    assert holding(chunks, "fourth = third").symbol == "Foo.third"


def test_a_definition_that_fills_a_chunk_is_cut_for_its_neighbour() -> None:
    """One line beside a definition that has no room for it does not stand alone."""
    chunks = cut("a.py", f"LIMIT = compute(1, 2, 3, 4, 5)\n\n\ndef full():\n{filler('    ', 20)}")
    assert len(chunks) == 2
    assert min(map(lines_of, chunks)) >= 4


def test_long_lines_are_cut_into_equal_runs() -> None:
    """Where four lines exceed the limit, no part has a single line if two fit."""
    row = "    " + ", ".join(f"'item {n}'" for n in range(15)) + ",\n"
    chunks = cut("a.py", "ITEMS = [\n" + row * 9 + "]\n")
    assert min(map(lines_of, chunks)) >= 2


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("src/pkg/store/rows.py", "store/rows.py"),
        ("rows.py", "rows.py"),
        ("/rows.py", "rows.py"),
        ("src\\store\\rows.py", "store/rows.py"),
        ("./store/../rows.py", "store/rows.py"),
        ("https://host.example/a/store/rows.py?raw=1#L3", "store/rows.py"),
        ("https://[broken/store/rows.py", "store/rows.py"),
    ],
)
def test_folder_and_file_name_are_embedded_with_code_without_a_title(uri: str, place: str) -> None:
    """The header of each chunk begins with the last two parts of the path."""
    text = f"def first():\n{filler('    ', 60)}"
    language = ("code", "python")
    chunks = chunking.cut(Source(uri, text, *language), 254, counter()).chunks
    assert len(chunks) > 1
    assert chunks[0].header == place
    assert {chunk.header for chunk in chunks[1:]} == {f"{place} > first"}
    titled = chunking.cut(Source(uri, text, *language, "A title"), 254, counter()).chunks
    assert titled[0].header == "A title"


def test_a_path_is_embedded_with_prose_but_an_id_is_not() -> None:
    """A uri without a suffix may be an id, which says nothing about a text."""
    for uri, header in (("docs/guide/setup.md", "guide/setup.md"), ("docs/17", ""), ("42", "")):
        [chunk] = chunking.cut(Source(uri, "# Setup\n\nText.", "markdown"), 254, counter()).chunks
        assert chunk.header == header


def test_a_tree_that_is_moved_keeps_its_texts() -> None:
    """No text to embed changes if a file keeps its name and its folder's name."""
    text = f"import os\n\n\nclass Rows:\n    def first(self):\n{filler('        ', 60)}"
    assert cut("old/deep/store/rows.py", text) == cut("new/store/rows.py", text)
    assert cut("store/rows.py", text) != cut("store/names.py", text)

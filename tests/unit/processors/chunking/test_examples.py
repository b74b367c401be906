"""Code examples: which blocks of a document are examples, and what each holds."""

from __future__ import annotations

import json
import random
from unittest.mock import Mock

import pytest

from processors.chunking import Chunk, Cut, Source, cut
from processors.chunking.chunkers import rst
from processors.chunking.packing.lines import Lines
from processors.chunking.sandbox.child import _bounded
from processors.chunking.sandbox.frames import (
    LENGTH_BYTES,
    cut_from,
    request,
    result_message,
    source_from,
)
from tests.support.chunking import LIMIT_TOKENS, counter

CODE = "import mill\nmill.open()\nmill.grind()"
GUIDE = f"""---
title: x
---
# Mills

## Grinding

The first paragraph is not shown.

Open the gate
before you grind:

```python
{CODE}
```

Flour comes out. It is white.

~~~{{.bash}}
grind --fine \\
  --slow


  --north
~~~

| a table | is no sentence |
|---|---|

```
> 1
> 2
> 3
```
"""


def examples(text: str, kind: str = "markdown", **fields: str | int) -> list[Chunk]:
    uri = "a.md" if kind == "markdown" else "a.rst"
    values = {"limit_tokens": LIMIT_TOKENS} | fields
    limit_tokens = int(values.pop("limit_tokens"))
    source = Source(uri, text, kind, title="The mill", version=int(values.pop("version", 2)))
    chunks = [*cut(source, limit_tokens, counter()).examples]
    lines = text.split("\n")
    for example in chunks:
        assert example.content == "\n".join(lines[example.start_line - 1 : example.end_line])
        assert example.tokens == counter()([f"{example.header}\n{example.content}"])[0]
        assert example.tokens <= limit_tokens
    return chunks


def test_an_example_has_headings_code_and_the_text_around_it() -> None:
    """Each fence has its headings, language, paragraph before and first sentence after."""
    grinding, fine, last = examples(GUIDE)
    assert (grinding.content, grinding.language) == (CODE, "python")
    assert grinding.heading_path == ("Mills", "Grinding")
    assert grinding.surroundings == "Open the gate before you grind:\nFlour comes out."
    assert grinding.header == f"The mill > Mills > Grinding\n{grinding.surroundings}"
    assert (fine.language, fine.end_line - fine.start_line) == ("bash", 4)
    assert fine.surroundings == "Flour comes out. It is white."
    assert (last.language, last.surroundings) == (None, "")


@pytest.mark.parametrize(
    "fence",
    [
        "```python\na = 1\n\nb = 2\n```",
        "```text\none\ntwo\nthree\n```",
        "```{note}\nThis is\nprose in\na box.\n```",
        "    a = 1\n    b = 2\n    c = 3",
        f"---\ntitle: |\n  ```\n  {CODE}\n---",
    ],
)
def test_other_blocks_are_no_examples(fence: str) -> None:
    """Two lines, text, directives of prose, indented text and front matter give no example."""
    assert examples(fence) == []


@pytest.mark.parametrize(
    ("opening", "line", "language"),
    [
        ("```py title=a.py", "x()", "py"),
        ("```{code-block} Rust", "x()", "rust"),
        ("```{r, echo=FALSE}", "x()", "r"),
        ("```", ">>> x()", "python"),
        ("```", "$ ls", "shell"),
        ("~~~~ js", ">>> x()", "js"),
        ("```", "x()", None),
    ],
)
def test_the_language_is_named_by_the_fence_or_shown_by_a_prompt(
    opening: str, line: str, language: str | None
) -> None:
    """An info string wins over a prompt; without both there is no language."""
    mark = opening[: len(opening) - len(opening.lstrip("`~"))]
    [example] = examples(f"{opening}\n{line}\n{line}\n{line}\n{mark}")
    assert example.language == language


def test_an_example_does_not_borrow_from_its_neighbours() -> None:
    """A sentence ending with a colon announces the next block; headings and code end a search."""
    text = f"Above\n\n# A\n\n```\n{CODE}\n```\n\nNext is this:\n\n```\n{CODE}\n```\n\n# B\n\nBelow."
    first, second = examples(text)
    assert (first.surroundings, second.surroundings) == ("", "Next is this:")


def test_long_text_around_an_example_is_shortened() -> None:
    """Last sentences of the paragraph before remain, and first words of the sentence after."""
    before = " ".join(f"Sentence number {n} of a long paragraph." for n in range(40))
    after = " ".join(f"word{n}" for n in range(200))
    [example] = examples(f"{before}\n\n```\n{CODE}\n```\n\n{after}.")
    first, second = example.surroundings.split("\n")
    assert before.endswith(first)
    assert first.startswith("Sentence number")
    assert after.startswith(second)
    assert all(0 < tokens <= 60 for tokens in counter()([first, second]))


def test_a_long_example_becomes_several_of_whole_lines() -> None:
    """The parts cover all lines of code in order; each has the headings and the text around."""
    rng = random.Random(3)
    code = [
        "" if number % 7 == 0 else "    " * rng.randrange(3) + f"call_number_{number}(argument)"
        for number in range(1, 200)
    ]
    parts = examples("Call it:\n\n```python\n" + "\n".join(code) + "\n```")
    assert len(parts) > 3
    assert {part.surroundings for part in parts} == {"Call it:"}
    rows = [line for part in parts for line in part.content.split("\n") if line]
    assert rows == [line for line in code if line]


def test_a_line_that_does_not_fit_is_data() -> None:
    """A block with a line over the limit gives no example."""
    assert examples(f"```\n{CODE}\n{'x = 1; ' * 500}\n```") == []


def test_blocks_of_restructured_text() -> None:
    """Directives of code are examples, and literal blocks that hold code."""
    text = """
Mills
=====

Open it::

    >>> mill.open()
    >>> mill.grind()
    'flour'

Then. Rest.

.. code-block:: c
   :linenos:

   int main() {
     return 0;
   }

A poem::

    Of mills
    and weirs
    and water

.. note::

   This is
   a note with
   three lines
"""
    opened, main = examples(text, "rst")
    assert (opened.language, opened.surroundings) == ("python", "Open it:\nThen.")
    assert (main.language, main.content.split("\n")[0]) == ("c", "   int main() {")
    assert main.heading_path == ("Mills",)


def test_cells_of_a_notebook_are_examples_and_their_outputs_are_not() -> None:
    """An example of a notebook has the place of its cell."""
    cells = [
        {"cell_type": "markdown", "source": "# Mills\n\nGrind it."},
        {"cell_type": "code", "source": CODE, "outputs": [
            {"output_type": "stream", "text": "one\ntwo\nthree"}]},
    ]  # fmt: skip
    notebook = {"nbformat": 4, "metadata": {}, "cells": cells}
    source = Source("a.ipynb", json.dumps(notebook).encode(), "notebook")
    [example] = cut(source, LIMIT_TOKENS, counter()).examples
    assert (example.content, example.surroundings) == (CODE, "Grind it.")
    assert example.locator == {"fragment": "cell=2"}


def test_only_version_2_has_examples_and_source_files_have_none() -> None:
    """A generation of version 1 is cut as before; a file of code is searched as text."""
    assert examples(GUIDE, version=1) == []
    file = Source("a.py", f'"""\n{GUIDE}\n"""\n', "code", "python")
    assert cut(file, LIMIT_TOKENS, counter()).examples == []


def test_examples_travel_from_the_parser_to_the_worker() -> None:
    """The version goes to the parser, and examples with their own fields come back."""
    source = Source("a.md", GUIDE, "markdown", version=1)
    assert source_from(request(source, 100)[LENGTH_BYTES:]) == (source, 100)
    made = cut(Source("a.md", GUIDE, "markdown"), LIMIT_TOKENS, counter())
    received = cut_from(json.dumps(result_message(made)).encode())
    assert isinstance(received, Cut)
    assert received.examples == made.examples


def test_examples_over_the_limit_of_chunks_are_left_out_with_a_warning() -> None:
    """The document is indexed, with as many examples as its chunks leave room for."""
    made = cut(Source("a.md", GUIDE, "markdown"), LIMIT_TOKENS, counter())
    most = len(made.chunks) + 1
    bounded = _bounded(made, most)
    assert bounded.examples == made.examples[:1]
    assert bounded.warnings == (f"2 code examples were left out: {most} chunks are the limit",)
    assert _bounded(made, most + 2) == made


def test_refused_literal_blocks_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of prose inside each other do not take time in square of their lines."""
    text = "\n\n".join(" " * row + "and a quotation::" for row in range(200))
    lines = Lines(text, lambda texts: [0] * len(texts))
    calls = Mock(wraps=rst._indent)
    monkeypatch.setattr(rst, "_indent", calls)
    assert list(rst.rst_blocks(lines)) == []
    assert calls.call_count <= len(lines)

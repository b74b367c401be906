"""Locality of edits: only chunks near an edit change."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from processors.chunking import Source, cut
from tests.support.chunking import LIMIT_TOKENS, counter

STDLIB = Path(sysconfig.get_path("stdlib"))
EDITS = 27
MOST_CHANGED = 3
MODULES = (
    "argparse",
    "ast",
    "cgi",
    "codecs",
    "configparser",
    "ftplib",
    "pathlib",
    "shutil",
    "socket",
)


def embedded(content: str) -> set[tuple[str, str]]:
    source = Source("module.py", content, "code", "python")
    return {(chunk.header, chunk.content) for chunk in cut(source, LIMIT_TOKENS, counter()).chunks}


def edits(content: str, rng: random.Random, many: int) -> Iterator[str]:
    """Copies of a module, each with one statement inserted, replaced or deleted."""
    functions = [node for node in ast.walk(ast.parse(content)) if isinstance(node, ast.FunctionDef)]
    while many:
        body = rng.choice(functions).body
        statement = rng.choice(body)
        lines = content.split("\n")
        start, end = statement.lineno - 1, statement.end_lineno
        indent = " " * statement.col_offset
        change = rng.choice(["insert", "insert more", "replace", "delete"])
        if change == "insert":
            lines[start:start] = [f"{indent}value = compute({many})"]
        elif change == "insert more":
            lines[start:start] = [f"{indent}if value:", f"{indent}    raise ValueError({many})"]
        elif change == "replace" or len(body) == 1:
            lines[start:end] = [f"{indent}replaced = other({many})  # edited"]
        else:
            lines[start:end] = []
        if parses("\n".join(lines)):
            many -= 1
            yield "\n".join(lines)


def parses(content: str) -> bool:
    try:
        ast.parse(content)
    except SyntaxError:
        return False
    return True


def test_editing_one_function_changes_at_most_three_chunks() -> None:
    """Only chunks near an edit of a long module have to be embedded again."""
    rng = random.Random(20)
    for name in MODULES:
        content = (STDLIB / f"{name}.py").read_text()
        before = embedded(content)
        for edited in edits(content, rng, EDITS // len(MODULES) + 1):
            assert len(embedded(edited) - before) <= MOST_CHANGED, name


def test_editing_one_sentence_changes_few_chunks() -> None:
    """A text of one line for each paragraph keeps the chunks that are far from an edit."""
    rng = random.Random(21)
    words = ["river", "heron", "nests", "bank", "water", "stone", "bridge", "flies", "slow"]
    sentences = [
        [" ".join(rng.choices(words, k=rng.randrange(4, 24))).capitalize() + "." for _ in range(30)]
        for _ in range(20)
    ]

    def chunks() -> set[tuple[str, str]]:
        text = "\n\n".join(" ".join(paragraph) for paragraph in sentences)
        source = Source("a.txt", text, "text")
        return {
            (chunk.header, chunk.content) for chunk in cut(source, LIMIT_TOKENS, counter()).chunks
        }

    before = chunks()
    for _ in range(EDITS):
        paragraph = rng.choice(sentences)
        paragraph[rng.randrange(len(paragraph))] = f"Edit {rng.random()} of the text is here."
        after = chunks()
        assert 0 < len(after - before) <= MOST_CHANGED
        before = after

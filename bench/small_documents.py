"""Small documents as people and agents write them: notes of one chunk, and mixed changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from bench.corpus import python_files
from events.models import DocumentChange, DocumentChanged

__all__ = ["changes_of_all_kinds", "new_note", "notes"]

_MODULE_LINES = 120


def notes(project: str, count: int, seed: int = 5) -> Iterator[DocumentChanged]:
    """Yield ``count`` different new notes of one chunk each: a heading and about 60 words."""
    rng = random.Random(seed)
    for number in range(count):
        yield new_note(project, _uri(number), rng)


def changes_of_all_kinds(project: str, count: int, seed: int = 5) -> Iterator[DocumentChanged]:
    """Yield per ten changes seven new notes, one edit, one delete, and one module of code."""
    rng = random.Random(seed)
    files = python_files()
    for number in range(count):
        if number % 10 == 7:
            yield new_note(project, _uri(rng.randrange(number)), rng)
        elif number % 10 == 8:
            uri = _uri(rng.randrange(number))
            yield DocumentChanged(data=DocumentChange(project=project, uri=uri, change="delete"))
        elif number % 10 == 9:
            uri, content = rng.choice(files)
            lines = content.splitlines()[:_MODULE_LINES]
            yield _upsert(project, f"modules/{number}/{uri}", "\n".join(lines) or "pass")
        else:
            yield new_note(project, _uri(number), rng)


def new_note(project: str, uri: str, rng: random.Random) -> DocumentChanged:
    """Write a note, or its new version if the uri exists."""
    title, *sentences = rng.sample(_sentences(), rng.randint(5, 8))
    return _upsert(project, uri, f"# {title}\n\n" + "\n".join(sentences) + "\n")


def _upsert(project: str, uri: str, content: str) -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project=project, uri=uri, content=content))


def _uri(number: int) -> str:
    return f"notes/{number // 1000:03}/note-{number:06}.md"


@lru_cache(1)
def _sentences() -> list[str]:
    """Return comments and docstrings of 6 to 20 words."""
    lines = (
        line.strip(" #\"'.\t")
        for _, text in python_files()[:600]
        for line in text.splitlines()
        if line.lstrip().startswith(("#", '"""'))
    )
    return sorted({line for line in lines if 6 <= len(line.split()) <= 20})

"""Real text for measurements: the standard library of the running interpreter."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from store.search.keyword.tokenizer import terms

__all__ = ["python_files", "questions", "topical_vector"]

DIMENSIONS = 384


def python_files(limit_bytes: int = 200_000) -> list[tuple[str, str]]:
    """Return path and text of each Python file up to a size, in a fixed shuffled order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(root.rglob("*.py")) if "site-packages" not in path.parts]
    random.Random(7).shuffle(paths)
    return list(_readable(root, paths, limit_bytes))


def _readable(root: Path, paths: list[Path], limit_bytes: int) -> Iterator[tuple[str, str]]:
    for path in paths:
        if not 0 < path.stat().st_size <= limit_bytes:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if "\x00" not in text:
            yield path.relative_to(root).as_posix(), text


def questions(count: int, seed: int = 11) -> list[str]:
    """Return distinct questions of 4 to 9 words, drawn from comments and docstrings."""
    rng = random.Random(seed)
    lines = [
        line.strip(" #\"'.\t")
        for _, text in python_files()[:400]
        for line in text.splitlines()
        if line.lstrip().startswith(("#", '"""'))
    ]
    pool = sorted({" ".join(line.split()[:9]) for line in lines if 4 <= len(line.split()) <= 24})
    rng.shuffle(pool)
    return pool[:count]


@lru_cache(maxsize=200_000)
def _term_vector(term: str) -> npt.NDArray[np.float32]:
    seed = int.from_bytes(blake2b(term.encode(), digest_size=8).digest())
    return np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)


def topical_vector(text: str) -> npt.NDArray[np.float16]:
    """Return a unit vector of width 384 that is near those of texts with the same terms.

    It is a random projection of the bag of terms. It has neighbourhoods like those of real
    embeddings, which a fair measurement of a vector index needs, at a hundredth of their cost.
    """
    counts: dict[str, int] = {}
    for term in terms(text):
        counts[term] = counts.get(term, 0) + 1
    total = np.zeros(DIMENSIONS, np.float32)
    for term, count in counts.items():
        total += np.sqrt(count) * _term_vector(term)
    norm = float(np.linalg.norm(total)) or 1.0
    return (total / norm).astype(np.float16)

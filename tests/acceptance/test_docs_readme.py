"""Example program of the README."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.support.databases import Database
from tests.support.running import headrace

README = Path(__file__).parents[2] / "README.md"
PLACE = "redis://localhost:6379/0"


async def test_the_python_example_publishes_and_finds(redis_url: str, database: Database) -> None:
    """The example publishes a document and prints its uri and text."""
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert PLACE in example
    printed: list[tuple[object, ...]] = []

    def run() -> None:
        names = {"print": lambda *values: printed.append(values)}
        exec(example.replace(PLACE, redis_url), names)  # noqa: S102 - it is from this repository

    async with headrace(redis_url, database):
        await asyncio.to_thread(run)
    assert printed == [("herons.md", "Herons nest in March.")]

"""Number of source files that a reader opens to follow one change."""

from __future__ import annotations

from tests.delivery_path import files_of_one_change
from tests.support.databases import Database

MOST_FILES = 47
"""Files that a reader opens to follow one change; lower it when the path gets shorter."""


async def test_a_change_passes_few_files(redis_url: str, database: Database) -> None:
    """The path from publication to acknowledgement gets no longer."""
    files = await files_of_one_change(redis_url, database)
    assert {"events/client/client.py", "processors/indexing/pipeline.py"} <= set(files)
    assert len(files) <= MOST_FILES, "\n".join(files)

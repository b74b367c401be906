"""Number of source files that a reader opens to follow one change."""

from __future__ import annotations

from tests.delivery_path import files_of_one_change

MOST_FILES = 45
"""Files that a reader opens to follow one change; lower it when the path gets shorter."""


def test_a_change_passes_few_files() -> None:
    """The path from publication to acknowledgement gets no longer."""
    files = files_of_one_change()
    assert {"events/client/client.py", "processors/indexing/pipeline.py"} <= set(files)
    assert len(files) <= MOST_FILES, "\n".join(files)

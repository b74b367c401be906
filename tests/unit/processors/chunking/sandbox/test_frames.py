"""Messages between a worker and its parsers."""

from __future__ import annotations

import json

from processors.chunking.sandbox.frames import cut_from, error_message, result_message
from processors.chunking.types import Cut
from runtime.errors import LimitExceeded, UnsupportedContent


def test_an_error_keeps_its_remedy() -> None:
    answer = json.dumps(error_message(LimitExceeded("9 chunks", "split the document")))
    error = cut_from(answer.encode())
    assert isinstance(error, LimitExceeded)
    assert (error.message, error.remedy) == ("9 chunks", "split the document")


def test_other_errors_are_unsupported_content() -> None:
    error = cut_from(json.dumps(error_message(ValueError("bad"))).encode())
    assert isinstance(error, UnsupportedContent)
    assert error.message == "cannot be parsed: ValueError('bad')"


def test_metadata_of_a_document_can_be_stored() -> None:
    """Characters that Postgres refuses become blanks, and a long value is cut."""
    cut = Cut((), "Talk", ("a warning",), {"channel": "a\0b", "date": "x" * 10_000})
    answer = cut_from(json.dumps(result_message(cut)).encode())
    assert isinstance(answer, Cut)
    assert (answer.title, answer.warnings) == ("Talk", ("a warning",))
    assert answer.metadata["channel"] == "a b"
    assert len(answer.metadata["date"]) < 10_000

"""Row numbers of documents: every key has one, however many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from events.names import DocumentKey
from processors.replay.document_rows import DocumentRows

TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=3)


@given(st.lists(st.builds(DocumentKey, TEXTS, TEXTS), max_size=200))
def test_rows_are_those_of_a_dictionary(keys: list[DocumentKey]) -> None:
    """Rows are numbered like the entries of a dictionary, and have their keys."""
    rows, oracle = DocumentRows(), dict[DocumentKey, int]()
    for key in keys:
        assert rows.find(key) == oracle.get(key)
        assert rows.add(key) == oracle.setdefault(key, len(oracle))
    assert len(rows) == len(oracle)
    assert [rows.key(row) for row in range(len(rows))] == list(oracle)


def test_many_documents_are_found() -> None:
    """Rows are found after the table has grown several times; agents have rows of their own."""
    keys = [DocumentKey(agent, f"{n}.md") for n in range(500) for agent in ("", "ada")]
    rows = DocumentRows()
    assert [rows.add(key) for key in keys] == [rows.find(key) for key in keys]
    assert rows.find(DocumentKey("", "500.md")) is None

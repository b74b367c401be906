"""Definitions of symbols, cut out of chunks."""

from __future__ import annotations

from processors.answering.definition_list import definitions_in
from store.types import ChunkRow


def row_of(chunk_id: int, content: str, symbol: str | None, line: int, tokens: int = 9) -> ChunkRow:
    """Chunk of a document whose id is that of the chunk in tens, from a line on."""
    return ChunkRow(
        chunk_id=chunk_id,
        document_id=chunk_id // 10,
        uri=f"{chunk_id // 10}.py",
        kind="code",
        title=None,
        content=content,
        start_line=line,
        end_line=line + content.count("\n"),
        page=None,
        locator=None,
        symbol=symbol,
        heading_path=(),
        commit=None,
        permalink_template=None,
        metadata={},
        tokens=tokens,
        ordinal=chunk_id % 10,
    )


def test_definitions_are_cut_out_of_their_chunks() -> None:
    """Parts of one are joined; a chunk without a definition that is recognised is whole."""
    rows = [
        row_of(10, "import os\n\ndef flow():\n  x\n\nA = 1\n\ndef go():\n  y", "flow, go", 1),
        row_of(20, "def flow():\n  a", "R.flow", 5),
        row_of(21, "  b", "R.flow", 8),
        row_of(22, "  c", "R.flow", 9, tokens=500),
        row_of(30, "FLOW(flow)\n", "flow, rest", 1),
        row_of(31, "more", "flow", 3),
        row_of(40, "flow()", "other", 3),
    ]
    found = [
        (each.row.chunk_id, each.row.content, each.row.start_line, each.row.end_line)
        for each in definitions_in(rows, ["flow", "go"])
    ]
    assert found == [
        (10, "def flow():\n  x", 3, 4),
        (10, "def go():\n  y", 8, 9),
        (20, "def flow():\n  a\n\n  b", 5, 8),
        (30, "FLOW(flow)\n", 1, 2),
    ]
    names = [(each.row.symbol, each.name) for each in definitions_in(rows[:2], ["flow", "go"])]
    assert names == [("flow", "flow"), ("go", "go"), ("R.flow", "flow")]

"""SQL files are found by the names of the modules that use them."""

from __future__ import annotations

import re
from pathlib import Path

import store
from store.postgres.named_queries import named

ROOT = Path(store.__path__[0])


def test_each_sql_file_has_the_name_of_a_module_or_folder() -> None:
    """A folder's modules share a file."""
    names = {path.stem for path in ROOT.rglob("*.py")}
    names |= {path.parent.name for path in ROOT.rglob("__init__.py")}
    files = {path.stem for path in (ROOT / "queries").glob("*.sql")}
    assert "ledger" in files
    assert files <= names


def test_statements_that_read_vectors_name_the_generation_by_a_literal() -> None:
    """With a parameter, a cached plan opens and locks the indexes of all partitions."""
    reading = re.compile(r"(?:from|join) (?:embeddings|\{table\})\b")
    statements = [
        (f"{file.stem}.{name}", sql)
        for file in (ROOT / "queries").glob("*.sql")
        for name, sql in named(file.stem).items()
        if reading.search(sql) and not name.startswith(("drop_project", "build_"))
    ]
    assert len(statements) > 10
    assert [name for name, sql in statements if "{generation_id}" not in sql] == []

"""SQL files are found by the names of the modules that use them."""

from __future__ import annotations

from pathlib import Path

import store

ROOT = Path(store.__path__[0])


def test_each_sql_file_has_the_name_of_a_module_or_folder() -> None:
    """A folder's modules share a file."""
    names = {path.stem for path in ROOT.rglob("*.py")}
    names |= {path.parent.name for path in ROOT.rglob("__init__.py")}
    files = {path.stem for path in (ROOT / "queries").glob("*.sql")}
    assert "ledger" in files
    assert files <= names

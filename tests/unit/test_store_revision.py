"""Migrations are numbered, one after the other."""

from __future__ import annotations

import re
from importlib.resources import files

from alembic.script import ScriptDirectory

from store.revision import head_revision, revisions


def test_migrations_are_numbered_without_a_gap() -> None:
    """0001_noun.py, 0002_noun.py, …, each with its SQL beside it."""
    versions = files("migrations").joinpath("versions")
    names = sorted(file.name for file in versions.iterdir() if file.name[0].isdigit())
    assert all(re.fullmatch(r"\d{4}_[a-z_]+\.(py|sql)", name) for name in names)
    assert list(revisions()) == [f"{number:04}" for number in range(1, len(revisions()) + 1)]
    python = {name.removesuffix(".py") for name in names if name.endswith(".py")}
    assert python == {name.removesuffix(".sql") for name in names if name.endswith(".sql")}


def test_the_last_number_is_the_head_of_one_line_of_revisions() -> None:
    """What alembic follows agrees with the names of the files."""
    scripts = ScriptDirectory(str(files("migrations")))
    assert scripts.get_heads() == [head_revision()]
    assert [script.revision for script in scripts.walk_revisions()] == list(revisions())[::-1]

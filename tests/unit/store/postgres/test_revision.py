"""Numbering of migrations."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from alembic.script import ScriptDirectory

from store.postgres.revision import Schema, head_revision, revisions

BEFORE_THE_RULE = {"0001", "0002", "0003", "0004"}


def test_migrations_are_numbered_without_a_gap() -> None:
    """Migrations are numbered without gaps, each with its SQL beside it."""
    versions = files("migrations").joinpath("versions")
    names = sorted(file.name for file in versions.iterdir() if file.name[0].isdigit())
    assert all(re.fullmatch(r"\d{4}_[a-z_]+\.(py|sql)", name) for name in names)
    assert list(revisions()) == [f"{number:04}" for number in range(1, len(revisions()) + 1)]
    python = {name.removesuffix(".py") for name in names if name.endswith(".py")}
    assert python == {name.removesuffix(".sql") for name in names if name.endswith(".sql")}


def test_the_last_number_is_the_head_of_one_line_of_revisions() -> None:
    """The alembic revisions equal the numbers of the files."""
    scripts = ScriptDirectory(str(files("migrations")))
    assert scripts.get_heads() == [head_revision()]
    assert [script.revision for script in scripts.walk_revisions()] == list(revisions())[::-1]


def test_every_migration_says_which_code_may_go_on_beside_it() -> None:
    """Each migration since 0005 names the oldest code that may work beside it."""
    scripts = ScriptDirectory(str(files("migrations")))
    for script in scripts.walk_revisions():
        if script.revision not in BEFORE_THE_RULE:
            assert script.module.oldest_code in revisions()
            assert "0005" <= script.module.oldest_code <= script.revision


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        (Schema(None), "run `headrace migrate`"),
        (Schema("0001"), "run `headrace migrate`"),
        (Schema(head_revision()), None),
        (Schema("9999", head_revision()), None),
        (Schema("9999", "0005"), None),
        (Schema("9999", "9998"), "upgrade headrace"),
        (Schema("9999", None), "upgrade headrace"),
    ],
)
def test_a_newer_schema_is_used_where_its_migration_allows(
    schema: Schema, remedy: str | None
) -> None:
    """A newer schema is accepted if its migration allows this code; an older one never is."""
    assert schema.flaw is None if remedy is None else schema.flaw is not None
    if schema.flaw is not None:
        assert schema.flaw[1] == remedy

"""Next version of the code: a copy of this tree with one more migration and code that uses it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from store.postgres.revision import head_revision
from tests.chaos.fleet import Fleet, Worker, fleet
from tests.chaos.runs import Run
from tests.support.cli import Command

__all__ = ["NEXT", "OLD", "NextVersion", "next_version"]

OLD, NEXT = "headrace", "headrace-next"
"""Name of each version as the source of its events and in the new column."""

_ROOT = Path(__file__).parents[2]
_LEFT_OUT = (".*", "docs", "requirements*.lock")
_REVISION = f"{int(head_revision()) + 1:04}"
_MIGRATION = '''"""Who noted a change."""

from migrations.statements import run_script

revision = "{revision}"
down_revision = "{before}"
oldest_code = "{oldest_code}"


def upgrade() -> None:
    run_script(__file__)
'''
_ADD = f"alter table ledger add column noted_by text not null default '{OLD}'"
_REQUIRE = "alter table ledger alter column noted_by drop default"
_EDITS = (
    ("events/models.py", f'= "{OLD}"\n    time:', f'= "{NEXT}"\n    time:'),
    (
        "store/queries/ledger.sql",
        "batch, agent, uri\n)\nselect",
        "batch, agent, uri, noted_by\n)\nselect",
    ),
    ("store/queries/ledger.sql", "select $1, n.*\n", f"select $1, n.*, '{NEXT}'\n"),
)
_SECONDS = 60


@dataclass(frozen=True)
class NextVersion:
    """Version with the schema's next ``revision``, and a ``fleet`` of its workers."""

    revision: str
    fleet: Fleet

    async def migrate(self, environment: Mapping[str, str], *, excludes_old: bool) -> None:
        """Run its `headrace migrate`.

        ``excludes_old``: the new column has no default, and so the previous code, which does not
        know it, may no longer work. With a default it may.
        """
        if excludes_old:
            _write_migration(self.fleet.root, self.revision, _ADD, _REQUIRE)
        else:
            _write_migration(self.fleet.root, head_revision(), _ADD)
        command = await Command.start(
            "migrate",
            environment={"PYTHONPATH": str(self.fleet.root), **environment},
            server=self.fleet.socket,
        )
        result = await command.result(_SECONDS)
        assert f"at revision {self.revision}\n" in result.stdout, result

    async def worker(self, run: Run) -> Worker:
        """Start a worker of this version in a run."""
        worker = await self.fleet.start(environment=run.environment)
        run.workers.append(worker)
        return worker


@contextmanager
def next_version(directory: Path) -> Iterator[NextVersion]:
    """Next version of this tree, below ``directory``."""
    root = directory / "next"
    shutil.copytree(_ROOT, root, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name, old, new in _EDITS:
        source = (root / name).read_text()
        assert source.count(old) == 1, f"{name} doesn't hold what the next version changes"
        (root / name).write_text(source.replace(old, new))
    _write_migration(root, head_revision(), _ADD)
    with fleet(root) as its:
        yield NextVersion(_REVISION, its)


def _write_migration(root: Path, oldest_code: str, *statements: str) -> None:
    migration = root / "migrations" / "versions" / f"{_REVISION}_next"
    shutil.rmtree(migration.parent / "__pycache__", ignore_errors=True)
    migration.with_suffix(".sql").write_text("\n\n".join(statements))
    migration.with_suffix(".py").write_text(
        _MIGRATION.format(revision=_REVISION, before=head_revision(), oldest_code=oldest_code)
    )

"""Next version of the code: a copy of this tree with one more migration and code that uses it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from store.postgres.revision import head_revision
from tests.chaos.fleet import Fleet, Worker, fleet
from tests.chaos.runs import Run
from tests.support.waiting import within

__all__ = ["NEXT", "OLD", "NextVersion", "contracting", "expanding"]

OLD, NEXT = "headrace", "headrace-next"
"""Name of each version as the source of its events and in the new column."""

_ROOT = Path(__file__).parents[2]
_LEFT_OUT = (".*", "__pycache__", "docs", "requirements.lock")
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
    """Version with its migration's ``revision`` and a ``fleet`` of its workers."""

    revision: str
    fleet: Fleet

    async def migrate(self, environment: Mapping[str, str]) -> None:
        """Run its `headrace migrate`."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.main", "migrate"),
            env={**os.environ, "PYTHONPATH": str(self.fleet.root), **environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with within(_SECONDS):
            output, _ = await process.communicate()
        assert f"at revision {self.revision}\n" in output.decode(), output.decode()

    async def worker(self, run: Run) -> Worker:
        """Start a worker of this version in a run."""
        worker = await self.fleet.start(environment=run.environment)
        run.workers.append(worker)
        return worker


@contextmanager
def expanding(directory: Path) -> Iterator[NextVersion]:
    """Version whose migration allows the previous code: the new column has a default."""
    with _version(directory, head_revision(), _ADD) as version:
        yield version


@contextmanager
def contracting(directory: Path) -> Iterator[NextVersion]:
    """Version whose migration excludes the previous code, which does not know the new column."""
    with _version(directory, _REVISION, _ADD, _REQUIRE) as version:
        yield version


@contextmanager
def _version(directory: Path, oldest_code: str, *statements: str) -> Iterator[NextVersion]:
    root = directory / "next"
    shutil.copytree(_ROOT, root, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    migration = root / "migrations" / "versions" / f"{_REVISION}_next"
    migration.with_suffix(".sql").write_text("\n\n".join(statements))
    migration.with_suffix(".py").write_text(
        _MIGRATION.format(revision=_REVISION, before=head_revision(), oldest_code=oldest_code)
    )
    for name, old, new in _EDITS:
        source = (root / name).read_text()
        assert source.count(old) == 1, f"{name} doesn't hold what the next version changes"
        (root / name).write_text(source.replace(old, new))
    with fleet(root) as its:
        yield NextVersion(_REVISION, its)

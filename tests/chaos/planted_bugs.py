"""Proof that the suite can fail: ``make planted``, or ``python -m tests.chaos.planted_bugs NAME``.

Each bug breaks one promise in a copy of the code. The tests named beside it run there, and at least
one must fail. The failing tests are printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUGS", "Bug", "planted"]

ROOT = Path(__file__).parents[2]
_LEFT_OUT = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__")
_FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Bug:
    """Promise, and the edit that breaks it: ``old`` becomes ``new`` at every occurrence."""

    name: str
    file: str
    old: str
    new: str
    tests: Sequence[str]


BUGS = (
    Bug(
        "the fence is off",
        "store/queries/fence.sql",
        "where\n    (coalesce(d.source_revision, d.position)",
        "where\n    true or (coalesce(d.source_revision, d.position)",
        (
            "tests/fundamentals",
            "tests/integration/store/documents/test_transaction.py",
            "tests/chaos/test_worker_kills.py",
            "tests/chaos/test_worker_outages.py",
            "tests/chaos/test_order_faults.py",
        ),
    ),
    Bug(
        "acknowledged before the commit",
        "processors/indexing/pipeline.py",
        '        failpoint("indexing.prepared")\n',
        "        for group in groups:\n            for delivery in group:\n"
        "                delivery.acknowledge()\n"
        '        failpoint("indexing.prepared")\n',
        (
            "tests/fundamentals",
            "tests/chaos/test_kill_worker.py",
            "tests/chaos/test_worker_kills.py",
            "tests/chaos/test_worker_outages.py",
        ),
    ),
    Bug(
        "the reply is a plain XADD",
        "events/server/scripts.py",
        "    if redis.call('EXISTS', KEYS[2]) == 0 then\n      local added = redis.pcall('XADD'",
        "    if true then\n      local added = redis.pcall('XADD'",
        ("tests/integration/events/client/test_questions.py", "tests/chaos/test_worker_outages.py"),
    ),
    Bug(
        "row-level security is not forced",
        "migrations/versions/0001_documents.sql",
        "        execute format('alter table %I force row level security', name);\n",
        "",
        (
            "tests/integration/store/postgres/test_isolation.py",
            "tests/integration/store/search/test_tenants.py",
        ),
    ),
    Bug(
        "signatures are not checked",
        "processors/indexing/intake.py",
        "            reasons = await self._key_ring.refusals(group[0].event.data.project, group)\n",
        "            reasons = [None for _ in group]\n",
        ("tests/integration/processors/test_admission.py",),
    ),
    Bug(
        "a sync does not save what it is about to publish",
        "sources/sync.py",
        "            doubtful=frozenset(doubtful).union(",
        "            doubtful=frozenset(()).union(",
        ("tests/chaos/test_source_histories.py",),
    ),
)


def planted(bug: Bug, source: str) -> str:
    """Source with the bug in it.

    Raises:
        ValueError: the source does not contain ``old``.
    """
    if bug.old not in source:
        raise ValueError(f"{bug.name}: {bug.file} doesn't hold what the bug replaces")
    return source.replace(bug.old, bug.new)


def _caught_by(bug: Bug) -> tuple[list[str], str]:
    """Tests that fail because of a bug, and the end of their output."""
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory, "headrace")
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        file = copy / bug.file
        file.write_text(planted(bug, file.read_text(encoding="utf-8")), encoding="utf-8")
        command = ["-P", "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *bug.tests]
        done = subprocess.run(
            [sys.executable, *command],
            cwd=copy,
            env=_environment(copy),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    return _FAILED.findall(done.stdout), done.stdout[-500:]


def _environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy)}


def main(names: Sequence[str]) -> int:
    """Plant all bugs or the named ones; returns 1 if no test notices one of them."""
    unnoticed = 0
    for bug in BUGS:
        if names and bug.name not in names:
            continue
        tests, tail = _caught_by(bug)
        lines = [f"{bug.name}: caught by {len(tests)} tests", *sorted(tests)]
        print("\n    ".join(lines), flush=True)  # noqa: T201
        if not tests:
            unnoticed += 1
            print(tail)  # noqa: T201
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

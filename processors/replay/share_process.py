"""Process that builds one share of a generation: ``python -m processors.replay.share_process``.

Its input is a line with project and generation, and a line for each document. It writes a line of
JSON for each batch (``done``, and the ``cost`` so far), for each document whose content a purge has
removed since the log was read (``changed``), and at the end (``complete`` or ``error``).
"""

from __future__ import annotations

import json
import os
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from processors.replay.builder import Builder
from processors.replay.fold import Fold, FoldedDocument
from processors.replay.project_log import ProjectLog
from processors.wiring.operator_tools import open_operator_tools
from runtime.errors import HeadraceError, Unavailable
from runtime.lifespan import run
from runtime.logs import configure_logs
from runtime.secrets import keep_secret, masked
from runtime.settings import Settings
from runtime.trace_export import exporting
from store.generations import catalog

__all__ = ["main"]

_LONGEST_ERROR = 4_000
_CONNECTIONS = 4
"""Most connections to Postgres: for three batches at once, and a reader."""

Report = Callable[[dict[str, Any]], None]


def main() -> None:
    """Read the order, build, and report; exit with 1 after an error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def report(message: dict[str, Any]) -> None:
        answers.write(f"{json.dumps(message)}\n")
        answers.flush()

    try:
        order = json.loads(sys.stdin.readline())
        settings = Settings()
        keep_secret((value for _, value in settings), os.environ)
        is_chosen = "log_level" in settings.model_fields_set
        configure_logs(settings.log_format, settings.log_level if is_chosen else "error")
        fold = Fold()
        for line in sys.stdin:
            fold.put(FoldedDocument.from_json(json.loads(line)))
        with exporting():
            run(lambda _: _build(settings, order["project"], order["generation"], fold, report))
    except Exception as error:  # noqa: BLE001  # the replay goes on without this process
        text = masked(str(error) if isinstance(error, HeadraceError) else repr(error))
        report({"error": text[:_LONGEST_ERROR]})
        sys.exit(1)
    report({"complete": True})


async def _build(
    settings: Settings, project: str, generation_id: int, fold: Fold, report: Report
) -> None:
    """Build all documents of the fold; none of them is deleted."""
    before = array("q", (hash(document.content_hash) for document in fold))
    async with open_operator_tools(settings, connections=_CONNECTIONS) as tools:
        project_id = await tools.projects.require(project)
        async with tools.database.scope(project_id) as connection:
            generation = await catalog.find(connection, project_id, generation_id)
        if generation is None:
            raise Unavailable(f"generation {generation_id} does not exist", "replay again")
        builder = Builder(project, generation, fold, ProjectLog.of(project, tools), tools)

        def report_batch(done: int, _: int) -> None:
            report({"done": done, "cost": asdict(builder.cost)})

        await builder.build(fold, fold.missing(), report_batch)
    for document in _changed(fold, before):
        report({"changed": document.as_json()})


def _changed(fold: Fold, before: array[int]) -> Iterator[FoldedDocument]:
    """Yield the documents whose content hash is another one than before."""
    for hashed, document in zip(before, fold, strict=True):
        if hash(document.content_hash) != hashed:
            yield document


if __name__ == "__main__":
    main()

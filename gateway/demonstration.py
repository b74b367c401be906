"""Material of ``headrace demo``: fixed files of this repository, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.errors import UsageError
from sources import Source, open_source
from sources.chosen_files import ChosenFiles

__all__ = ["ABOUT_ANYTHING", "ABOUT_HEADRACE", "FILES", "REPOSITORY", "Demonstration", "choose"]

REPOSITORY = Path(__file__).parents[1]

FILES = (
    "CONTRIBUTING.md",
    "README.md",
    "docs/explanation/architecture.md",
    "docs/explanation/decisions/archive.md",
    "docs/explanation/decisions/embedded-servers.md",
    "docs/explanation/decisions/flow-control.md",
    "docs/explanation/decisions/fusion.md",
    "docs/explanation/decisions/generations.md",
    "docs/explanation/decisions/locked-environment.md",
    "docs/explanation/decisions/schema-upgrades.md",
    "docs/explanation/decisions/search-indexes.md",
    "docs/explanation/formats.pdf",
    "docs/explanation/glossary.md",
    "docs/how-to/publish.md",
    "docs/how-to/run-in-production.md",
    "docs/how-to/sync.md",
    "docs/operations/runbook.md",
    "docs/operations/servers.md",
    "docs/quickstart.md",
    "docs/reference/events.md",
    "docs/reference/limits.md",
    "events/client/client.py",
    "events/client/follow.py",
    "events/client/publisher.py",
    "events/client/questions.py",
    "events/models.py",
    "events/names.py",
    "events/rate_limits.py",
    "events/server/connection.py",
    "events/signatures.py",
    "events/streams/replies.py",
    "events/transport/faust_consumer.py",
    "events/transport/subscription.py",
    "processors/answering/freshness.py",
    "processors/answering/fusion.py",
    "processors/answering/pipeline.py",
    "processors/answering/results.py",
    "processors/answering/timing.py",
    "processors/embedders/remote/circuit_breaker.py",
    "processors/embedders/remote/provider.py",
    "processors/handlers.py",
    "processors/heartbeat.py",
    "runtime/embedded/postgres.py",
    "runtime/embedded/redis.py",
    "runtime/embedded/server.py",
    "runtime/embedded/users.py",
    "runtime/errors.py",
    "runtime/lifespan.py",
    "runtime/secrets.py",
    "sources/comparison.py",
    "sources/directory.py",
    "sources/files.py",
    "sources/state.py",
    "sources/types.py",
    "store/documents/ledger.py",
    "store/documents/transaction.py",
    "store/generations/catalog.py",
    "store/search/keyword/bm25.py",
    "store/search/keyword/retriever.py",
    "store/search/keyword/tokenizer.py",
    "store/search/search.py",
    "store/search/vector_retriever.py",
    "tests/data/content/openapi/oai-v2.0-json-petstore-expanded.json",
    "tests/fundamentals/test_dead_letters.py",
    "tests/fundamentals/test_documents.py",
    "tests/fundamentals/test_projects.py",
    "tests/integration/processors/test_delivery.py",
)
"""Files of the demo, listed by name so that its duration doesn't grow with the repository."""

ABOUT_HEADRACE = (
    "How long do dead letters stay?",
    "Where are stream and key names built?",
    "Which code decides that a file is not text?",
    "What prevents passwords from showing up in log output?",
    "What can I do about a scanned PDF?",
)
"""Questions about the chosen files: only vectors find the answer to the third one.

This file is not one of them, because its text contains the questions.
"""

ABOUT_ANYTHING = (
    "What is the purpose of this?",
    "How is it installed and started?",
    "How are errors handled?",
)

_NEXT_ABOUT_HEADRACE = "How does a server notice that its owner died?"
_NEXT_ABOUT_ANYTHING = "How is it tested?"


@dataclass(frozen=True)
class Demonstration:
    """Documents of one demo, the project that they go to, and its questions.

    ``next_question`` is suggested as the next one to ask.
    """

    source: Source
    project: str
    questions: tuple[str, ...]
    next_question: str


def choose(path: Path | None, home: Path | None = None) -> Demonstration:
    """Choose the demo of a directory or, if ``path`` is None, that of this repository.

    ``home`` is the home of Headrace itself, which is left out.

    Raises:
        UsageError: the directory cannot be read, or Headrace was installed without its repository.
    """
    if path is None:
        chosen = ChosenFiles(_headrace_repository(), FILES)
        return Demonstration(chosen, "demo", ABOUT_HEADRACE, _NEXT_ABOUT_HEADRACE)
    directory = path.resolve()
    source = open_source(directory, homes=[home] if home else ())
    project = f"demo-{_slug(directory)}"
    if directory == REPOSITORY:
        return Demonstration(source, project, ABOUT_HEADRACE, _NEXT_ABOUT_HEADRACE)
    return Demonstration(source, project, ABOUT_ANYTHING, _NEXT_ABOUT_ANYTHING)


def _headrace_repository() -> Source:
    if not (REPOSITORY / "pyproject.toml").is_file():
        raise UsageError("Headrace was installed without its repository", "name a directory")
    return open_source(REPOSITORY)


def _slug(directory: Path) -> str:
    """Name of a directory in a form that fits into a project's name."""
    name = directory.name.lower()
    letters = (letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return "".join(letters)[:50] or "root"

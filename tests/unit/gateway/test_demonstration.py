"""Files and steps of the demo, without servers."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from content.detection import decode, detect
from content.registry import EXTRACTORS, extract
from events.models import Citation, Kind, QueryAnswer, Scores, SearchResult
from gateway.commands import demo
from gateway.demonstration import ABOUT_HEADRACE, FILES, REPOSITORY, Demonstration, choose
from runtime.errors import Unavailable
from sources import IndexedDocument, SizeLimits, Source, open_source
from sources.chosen_files import ChosenFiles
from store.documents.pending import Counts
from tests.support.chunking import cut
from tests.support.syncs import Synced, begin

MOST_CHUNKS = 1_500
"""Most chunks that a demo may embed, so that it takes as long as the README says."""

HELD = {
    "How long do dead letters stay?": ("docs/reference/events.md", "Dead letters stay until"),
    "Where are stream and key names built?": ("events/names.py", "built here and nowhere else"),
    "Which code decides that a file is not text?": ("sources/files.py", "def to_text("),
    "What prevents passwords from showing up in log output?": (
        "docs/how-to/run-in-production.md",
        "are masked",
    ),
    "What can I do about a scanned PDF?": ("docs/explanation/formats.pdf", "Add a text layer"),
}
"""File that answers each question, and words of the answer."""


def text_of(uri: str) -> str:
    raw = (REPOSITORY / uri).read_bytes()
    kind = detect(uri, None, raw).kind
    return "\n".join(extract(kind, raw).lines) if kind in EXTRACTORS else decode(raw)


def test_every_chosen_file_is_there_and_none_twice() -> None:
    assert [uri for uri in FILES if not (REPOSITORY / uri).is_file()] == []
    assert len(set(FILES)) == len(FILES)
    assert "gateway/demonstration.py" not in FILES, "it would answer its own questions"


def test_the_chosen_files_stay_few_chunks() -> None:
    """The chosen files make few enough chunks for a quick demo."""
    assert len(FILES) <= 100
    contents = {uri: (REPOSITORY / uri).read_bytes() for uri in FILES}
    assert sum(len(cut(uri, raw)) for uri, raw in contents.items()) < MOST_CHUNKS


def test_the_printed_page_has_the_words_of_its_source() -> None:
    """``formats.pdf`` is the print of ``formats.html``: print it again after a change of that."""
    printed, written = (
        re.findall(r"\w+", text_of(f"docs/explanation/formats.{suffix}"))
        for suffix in ("pdf", "html")
    )
    assert Counter(printed) == Counter(written)


def test_each_question_has_its_answer_in_a_chosen_file() -> None:
    assert set(HELD) == set(ABOUT_HEADRACE)
    for uri, words in HELD.values():
        assert uri in FILES
        assert words in text_of(uri)


def test_chosen_files_of_a_source_take_the_others_away(tmp_path: Path) -> None:
    """Files that an earlier sync published and that are not chosen are deleted."""
    for name in ("chosen.md", "other.md"):
        (tmp_path / name).write_text("Herons nest in March.")
    before = Synced(
        indexed={"former.md": IndexedDocument("0" * 64), "other.md": IndexedDocument("1" * 64)}
    )
    sync = begin(ChosenFiles(open_source(tmp_path), ["chosen.md", "gone.md"]), before)
    changes = {change.uri: change.change for change in sync}
    assert changes == {"chosen.md": "upsert", "former.md": "delete", "other.md": "delete"}
    assert (sync.report.found, sync.report.published) == (1, 1)


def test_a_named_directory_is_indexed_whole(tmp_path: Path) -> None:
    (tmp_path / "Notes of 2026").mkdir()
    (tmp_path / "Notes of 2026" / "herons.md").write_text("Herons nest in March.")
    chosen = choose(tmp_path / "Notes of 2026")
    assert chosen.project == "demo-notes-of-2026"
    assert set(chosen.source.list(SizeLimits(2**20, 2**20)).files) == {"herons.md"}


def answer(uri: str, coverage: float) -> QueryAnswer:
    """Answer with one result, the first line of ``uri``."""
    result = SearchResult(
        chunk_id=1,
        content="Herons nest in March.",
        kind=Kind.MARKDOWN,
        citation=Citation(uri=uri, start_line=1, end_line=1),
        scores=Scores(fused=1.0),
        match_type="keyword",
    )
    return QueryAnswer(
        query_id="q", project="p", results=(result,), watermark={}, coverage=coverage
    )


class Servers:
    """Servers that answer questions; half of the missing vectors arrive at each count."""

    def __init__(self, missing: int) -> None:
        self.missing = missing
        self.asked: list[tuple[str, int]] = []

    async def ask(self, _project: str, question: str, **_: object) -> QueryAnswer:
        self.asked.append((question, self.missing))
        better = question == "by meaning" and not self.missing
        return answer("after.md" if better else "before.md", 1 - self.missing / 100)

    async def counts(self, _project: str) -> Counts:
        self.missing //= 2
        return Counts(chunks=100, pending=self.missing, refused=0)


async def record_of(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> tuple[demo._Record, str]:
    """Run a demo with two questions; its course and output."""
    monkeypatch.setattr(demo, "_POLL_SECONDS", 0.0)
    tools = cast("demo._Tools", SimpleNamespace(client=servers, pending=servers))
    record, output = demo._Record(), io.StringIO()
    about = Demonstration(cast("Source", None), "p", ("by words", "by meaning"), "more?")
    await demo._ask_twice(tools, about, record, Console(file=output, width=200))
    return record, output.getvalue()


async def test_questions_are_asked_before_the_vectors_and_after(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First answers are printed with the coverage; later ones with the difference."""
    servers = Servers(missing=80)
    record, output = await record_of(servers, monkeypatch)
    assert servers.asked == [
        ("by words", 80),
        ("by meaning", 80),
        ("by words", 0),
        ("by meaning", 0),
    ]
    assert [reply.answer.coverage for reply in record.last] == [1, 1]
    first, _, last = output.partition("all searchable by vector")
    assert first.count("20% of the chunks have vectors") == 2
    assert "before.md:1-1" in first
    assert "the same answer: before.md:1-1" in last
    assert "1. after.md:1-1" in last
    assert "before: before.md:1-1" in last
    assert "searchable by vector: 100 of 100 chunks" in capsys.readouterr().err


async def test_nothing_is_asked_again_where_nothing_was_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = Servers(missing=0)
    record, _ = await record_of(servers, monkeypatch)
    assert servers.asked == [("by words", 0), ("by meaning", 0)]
    assert record.last == record.first
    assert record.seconds.keys() == {"answered", "vectors"}


async def test_a_question_without_an_answer_yet_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wordless(Servers):
        async def ask(self, _project: str, question: str, **options: object) -> QueryAnswer:
            answer = await super().ask(_project, question, **options)
            return answer.model_copy(update={"results": ()}) if self.missing else answer

    _, output = await record_of(Wordless(missing=80), monkeypatch)
    first, _, last = output.partition("all searchable by vector")
    assert first.count("nothing found yet") == 2
    assert "before: nothing" in last


async def test_vectors_that_never_come_end_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(Servers):
        async def counts(self, _project: str) -> Counts:
            return Counts(chunks=100, pending=self.missing, refused=0)

    monkeypatch.setattr(demo, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(Unavailable, match="80 chunks have no vector"):
        await record_of(Stuck(missing=80), monkeypatch)


def test_next_commands_start_servers_only_where_there_are_none() -> None:
    about = Demonstration(cast("Source", None), "notes", (), "When do herons nest?")
    alone = list(demo._next(about, has_servers=False))
    beside = list(demo._next(about, has_servers=True))
    assert [line for line in alone if line not in beside] == [
        "headrace up    # servers and a worker, until Ctrl-C; the rest in another terminal"
    ]
    assert 'headrace ask --project notes "When do herons nest?"' in beside

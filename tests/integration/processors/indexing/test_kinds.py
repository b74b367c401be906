"""Documents of every kind, from publisher to citation, with a real worker."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pptx
import pytest
import xlsxwriter

from events.models import DocumentIndexed, DocumentRejected, Filters, Kind
from tests.support.databases import Database
from tests.support.replays import replay, rows, tools
from tests.support.running import Headrace, headrace

PAGES = Path(__file__).parents[4] / "docs"
PDF = (PAGES / "explanation" / "formats.pdf").read_bytes()


def slides() -> bytes:
    presentation = pptx.Presentation()
    for title, text in (("Rivers", "Weirs slow them."), ("Herons", "They nest in March.")):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text * 40
    return saved(presentation)


def sheet() -> bytes:
    file = io.BytesIO()
    workbook = xlsxwriter.Workbook(file, {"in_memory": True})
    costs = workbook.add_worksheet("Costs")
    for number, row in enumerate([("Item", "Amount"), ("Turbine", 4200), ("Sluice gate", 950)]):
        costs.write_row(number, 0, row)
    workbook.close()
    return file.getvalue()


def saved(presentation: pptx.presentation.Presentation) -> bytes:
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"language": "python"}},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": "# Discharge of a weir"},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "coefficient = 0.62",
            "outputs": [],
            "execution_count": 1,
        },
    ],
}
MESSAGES = [
    {"role": "user", "content": "Which gate leaks?"},
    {"role": "assistant", "content": "The sluice gate at the old mill leaks."},
]
MAIL = (
    b"From: Ana <ana@example.org>\r\nTo: ben@example.org\r\nSubject: Spillway inspection\r\n"
    b"Date: Mon, 2 Mar 2026 10:14:00 +0000\r\n\r\nThe spillway concrete has a crack.\r\n"
)

KINDS: list[tuple[str, str | bytes, str, Kind, str]] = [
    ("formats.pdf", PDF, "remedy for a scanned PDF", Kind.PDF, "page=2"),
    ("formats.html", "<html><body><main><h1 id='fish'>Fish ladder</h1><p>Salmon climb it.</main>",
     "salmon", Kind.HTML, "fish"),
    ("api.json", (PAGES / "openapi.json").read_text(encoding="utf-8"),
     "respond as long as the process runs", Kind.OPENAPI, "GET /healthz"),
    ("weir.ipynb", json.dumps(NOTEBOOK), "discharge coefficient", Kind.NOTEBOOK, "cell=1-2"),
    ("talk.pptx", slides(), "herons nest", Kind.SLIDES, "slide=2"),
    ("costs.xlsx", sheet(), "turbine", Kind.SHEET, "Costs!A1:B3"),
    ("costs.csv", "Item,Amount\nPenstock,700\nTrash rack,80\n", "penstock", Kind.SHEET, "A1:B3"),
    ("chat.json", json.dumps(MESSAGES), "which gate leaks", Kind.CONVERSATION, "turns=1-2"),
    ("mail.eml", MAIL, "crack in the spillway", Kind.EMAIL, "message"),
]  # fmt: skip


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    async with headrace(redis_url, database) as started:
        yield started


async def test_an_answer_cites_the_place_in_a_document_of_any_kind(running: Headrace) -> None:
    """Each kind is detected by its bytes, extracted, found by its words, and cited by its place."""
    receipts = {
        uri: await running.client.upsert("docs", uri, content) for uri, content, *_ in KINDS
    }
    outcomes = {uri: await running.outcome(receipt) for uri, receipt in receipts.items()}
    assert {type(outcome) for outcome in outcomes.values()} == {DocumentIndexed}
    for uri, _, question, kind, fragment in KINDS:
        answer = await running.client.ask("docs", question, mode="keyword")
        best = answer.results[0]
        assert (best.citation.uri, best.kind, best.citation.fragment) == (uri, kind, fragment)
        if kind is Kind.PDF:
            [box] = best.citation.pages
            assert (best.citation.page, box.page) == (2, 2)
            assert 0 < box.left < box.right < 595
            assert 0 < box.bottom < box.top < 842


async def test_a_conversation_is_found_by_its_metadata(running: Headrace) -> None:
    """An export gives its document channel, day and participants, unless the publisher does."""
    author = {"id": "7", "name": "ana"}
    message = {
        "id": "1",
        "timestamp": "2026-03-02T10:14:00Z",
        "content": "It leaks.",
        "author": author,
    }
    for channel, metadata in (("mill", {}), ("dam", {"channel": "weir"})):
        export = json.dumps({"channel": {"name": channel}, "messages": [message]})
        receipt = await running.client.upsert("docs", f"{channel}.json", export, metadata=metadata)
        assert isinstance(await running.outcome(receipt), DocumentIndexed)
    for wanted, uri in (("mill", "mill.json"), ("weir", "dam.json")):
        filters = Filters(metadata={"channel": wanted, "date": "2026-03-02", "participants": "ana"})
        answer = await running.client.ask("docs", "leaks", mode="keyword", filters=filters)
        assert [result.citation.uri for result in answer.results] == [uri]


async def test_a_replay_extracts_the_archived_bytes_again(running: Headrace) -> None:
    """A second generation, built from the archive, has the same chunks at the same places."""
    query = """select c.content, c.locator::text from chunks c
        join documents d on d.generation_id = c.generation_id and d.id = c.document_id
        where c.generation_id = $1 order by d.uri, c.ordinal"""
    await running.outcome(await running.client.upsert("docs", "formats.pdf", PDF))
    before = await rows(running.database, "docs", query)
    async with tools(running.redis_url, running.database) as replaying:
        assert (await replay(replaying)).switched
    assert await rows(running.database, "docs", query) == before
    assert all(row["locator"] for row in before)


@pytest.mark.parametrize(
    ("uri", "content", "code"),
    [
        ("broken.pdf", b"%PDF-1.7\n" + b"\xff" * 500, "Damaged"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2_000), "LegacyFormat"),
        ("film.bin", bytes(range(256)) * 8, "UnsupportedContent"),
    ],
)
async def test_a_file_that_cannot_be_read_is_refused_with_a_remedy(
    running: Headrace, uri: str, content: bytes, code: str
) -> None:
    """The change is rejected with a code of its own, and its neighbour is indexed."""
    refused = await running.client.upsert("docs", uri, content)
    neighbour = await running.client.upsert("docs", "near.md", "# Near\n\nIt is intact.")
    outcome = await running.outcome(refused)
    assert isinstance(outcome, DocumentRejected)
    assert outcome.data.problem.type == code
    assert "; " in outcome.data.problem.detail
    assert isinstance(await running.outcome(neighbour), DocumentIndexed)

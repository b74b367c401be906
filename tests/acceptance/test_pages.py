"""All pages of a running ``headrace up`` in a real browser, as a person uses them.

``tests/integration/gateway/web`` checks the accessibility of most screens; this file checks that of
the states that only a deployment shows.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, Page, expect

from processors.chunking.registry import Chunking
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.browser import check_accessibility, chromium, open_page, wait_for_script
from tests.support.cli import Cli, Result
from tests.support.hostile_values import MARKUP
from tests.support.waiting import eventually, patience

Value = TypeVar("Value")

FILES = 60
LINK = re.compile(r"http://127\.0\.0\.1:\d+/login\?ticket=\S+")


@dataclass(frozen=True)
class Deployment:
    """A running ``headrace up``; ``link`` is the one that it printed."""

    cli: Cli
    home: Path
    link: str

    @property
    def address(self) -> str:
        """Address of the gateway."""
        return self.link.partition("/login")[0]

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """Run a command, which must succeed."""
        result = wait_for(self.cli(*arguments, stdin=stdin))
        assert result.code == 0, result
        return result

    def publish(self, *documents: dict[str, Any]) -> None:
        """Publish changes, and wait until each is indexed or rejected."""
        events = [{"type": "document.changed", "data": document} for document in documents]
        wait_for(self.cli("publish", "--wait", stdin="\n".join(map(json.dumps, events))))

    def await_letters(self, count: int) -> None:
        """Wait for dead letters, which are written after the outcomes of their changes."""

        async def are_written() -> bool:
            return len((await self.cli("dead", "list", "--json")).objects) == count

        wait_for(eventually(are_written, f"{count} dead letters are written"))

    @contextmanager
    def paused_worker(self) -> Iterator[None]:
        """Let changes wait for the duration of the context."""
        [worker] = self.run("status", "--json").json["workers"]
        pid = int(worker["worker"].split(":")[1])
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def wait_for(work: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine to its end; the browser has the event loop of this thread."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, work).result()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def deployment(browser: Browser, tmp_path: Path) -> Iterator[Deployment]:
    home = tmp_path / "home"
    environment = {
        "HEADRACE_MODEL": HASHING_MODEL,
        "HEADRACE_HOME": str(home),
        "HEADRACE_REDIS_URL": "",
        "HEADRACE_DATABASE_URL": "",
    }
    cli = Cli(environment)
    up = wait_for(cli("up", "--detach"))
    try:
        link = LINK.search(up.stdout + up.stderr)
        assert link, up
        yield Deployment(cli, home, link[0])
    finally:
        wait_for(cli("down"))


@pytest.fixture
def page(browser: Browser, deployment: Deployment) -> Iterator[Page]:
    with open_page(browser, deployment.address) as page:
        yield page


def test_pages(deployment: Deployment, page: Page, tmp_path: Path) -> None:
    """One person, one deployment: each part needs what the parts before it left."""
    for part in (
        log_in_by_the_printed_link,
        follow_a_sync,
        ask_and_open_a_citation,
        read_hostile_texts,
        redrive_dead_letters,
        replay_switch_and_roll_back,
        compare_evaluations,
    ):
        part(deployment, page, tmp_path)


def log_in_by_the_printed_link(deployment: Deployment, page: Page, _: Path) -> None:
    """The printed link opens a session once; a used link leads to another."""
    page.goto(deployment.link)
    page.wait_for_url("**/ask")
    expect(page.get_by_text("headrace sync PATH")).to_be_visible()
    for screen in ("Documents", "Sources", "Streams", "Dead letters", "Generations", "Evaluations"):
        page.get_by_role("navigation").get_by_role("link", name=screen).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(screen)
        expect(page.get_by_role("alert")).to_have_count(0)
    page.goto(deployment.link)
    expect(page.get_by_role("alert")).to_contain_text("used before")
    check_accessibility(page, "real-used-link")
    [link] = LINK.findall(deployment.run("open").stdout)
    page.goto(link)
    page.wait_for_url("**/ask")


def follow_a_sync(deployment: Deployment, page: Page, directory: Path) -> None:
    """The page of a source counts the changes of a sync, from none to all."""
    source = directory / "handbook"
    for number in range(FILES):
        file = source / f"chapter-{number % 10}" / f"section-{number}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# Section {number}\n\nSluice {number} opens at {number} litres.\n")
    (source / "pump.py").write_text(
        '"""Pumps."""\n\n\ndef start_pump(flow_limit: float) -> None:\n'
        '    """Start a pump, and stop it above the limit of its flow."""\n    print(flow_limit)\n'
    )
    (source / "photo.md").write_bytes(b"\x00\x01\x02\x03" * 16)
    with deployment.paused_worker():
        deployment.run("sync", str(source), "--project", "handbook", "--source", "handbook")
        page.goto("/sources?project=handbook")
        expect(page.get_by_text(f"0 of {FILES + 1} changes handled")).to_be_visible()
        page.get_by_role("link", name="Progress of batch").click()
        expect(page.get_by_text(f"0 of {FILES + 1} changes handled")).to_be_visible()
    expect(page.get_by_text("This batch is done.")).to_be_visible(timeout=patience(30) * 1000)
    expect(page.get_by_text(f"{FILES + 1} of {FILES + 1} changes handled")).to_be_visible()
    page.get_by_role("link", name="Sources").first.click()
    page.get_by_text("1 file skipped").click()
    expect(page.get_by_text("photo.md")).to_be_visible()
    page.get_by_role("link", name="Documents").first.click()
    expect(page.get_by_role("link", name="chapter-0/section-0.md")).to_be_visible()


def ask_and_open_a_citation(_: Deployment, page: Page, __: Path) -> None:
    """Results come while one types, and are judged; a citation opens the document at its lines."""
    page.get_by_role("link", name="Ask").first.click()
    wait_for_script(page)
    page.locator("#q").press_sequentially("flow limit of a pump", delay=5)
    # the answer to a part of the question would be replaced
    expect(page).to_have_url(re.compile(r"[?&]q=flow\+limit\+of\+a\+pump(&|$)"))
    expect(page.locator("#ask")).not_to_have_class(re.compile("htmx-request"))
    citation = page.get_by_role("link", name=re.compile(r"^pump\.py:\d"))
    expect(citation).to_be_visible()
    expect(page.locator("article mark").first).to_be_visible()
    result = page.locator("article", has=citation)
    result.locator("details.why summary").click()
    result.get_by_role("button", name="useful", exact=True).click()
    expect(result.locator(".judged")).to_have_text("Judged as useful.")
    result.get_by_role("link", name="similar").click()
    expect(page.get_by_role("status")).to_contain_text("similar to pump.py:1")
    page.go_back()
    citation.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pump.py")
    expect(page.locator(".row.marked").first).to_be_visible()
    expect(page.locator("#L4")).to_contain_text("def start_pump(flow_limit: float)")


def read_hostile_texts(deployment: Deployment, page: Page, _: Path) -> None:
    """Stored markup is text: in uris, titles, collections, metadata and lines."""
    deployment.publish(
        *(
            {
                "project": "hostile",
                "uri": f"{text[:60]} {number}.md",
                "title": text,
                "content": f"{text}\n",
                "collections": [f"guide {number}"],
                "metadata": {"note": text},
            }
            for number, text in enumerate(MARKUP)
        )
    )
    page.goto("/ask?project=hostile&q=document+title+owned")
    expect(page.locator("article").first).to_be_visible()
    check_accessibility(page, "real-hostile-answer")
    page.goto("/documents?project=hostile")
    expect(page.locator("a.open")).to_have_count(len(MARKUP))
    page.locator("a.open").first.click()
    expect(page.locator(".row").first).to_be_visible()
    assert page.locator("main script, main img, main svg[onload], base").count() == 0
    assert page.title() != "owned"


def redrive_dead_letters(deployment: Deployment, page: Page, _: Path) -> None:
    """Dead letters are found by reason, redriven by filter, and followed to their outcome."""
    key = deployment.run("keys", "add", "--project", "signed").stdout
    unsigned = [
        {"project": "signed", "uri": f"{number}.md", "content": f"Weir {number}. {MARKUP[0]}"}
        for number in range(3)
    ]
    reference = {"sha256": "0" * 64, "size_bytes": 9}
    deployment.publish(
        *unsigned, {"project": "handbook", "uri": "lost.md", "content_ref": reference}
    )
    page.goto("/streams")
    expect(page.get_by_role("region", name="Workers")).to_be_visible()
    deployment.await_letters(4)
    page.goto("/dead-letters")
    expect(page.get_by_role("link", name="SignatureRefused")).to_be_visible()
    page.get_by_role("link", name="SignatureRefused").click()
    expect(page.locator(".letters li")).to_have_count(3)
    page.locator(".letters a.open").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("SignatureRefused")
    page.go_back()
    last = re.search(r"HEADRACE_SIGNING_KEY=([^:\s]+):", key)
    assert last, key
    deployment.run("keys", "retire", "--project", "signed", "--last", last[1])
    page.get_by_role("button", name="Redrive all 3 …").click()
    check_accessibility(page, "real-redrive-confirm")
    page.get_by_role("button", name="Redrive 3").click()
    expect(page.locator(".state.indexed")).to_have_count(3)
    check_accessibility(page, "real-redriven")
    page.get_by_role("link", name="0.md").click()
    expect(page.locator("#L1")).to_contain_text(f"Weir 0. {MARKUP[0]}")
    page.goto("/dead-letters")
    expect(page.get_by_role("link", name="SignatureRefused")).to_have_count(0)


def replay_switch_and_roll_back(_: Deployment, page: Page, __: Path) -> None:
    """A replay is estimated, started and followed; its generation is live, then it is not."""
    first = page.get_by_role("row", name=re.compile(rf" live .* {Chunking()} 6\d "))
    replayed = page.get_by_role("row", name=re.compile(" live .* 1:96 "))
    page.goto("/generations?project=handbook")
    page.get_by_label("Chunking").fill("1:96")
    page.get_by_role("button", name="Estimate").click()
    expect(page.get_by_label("Estimate")).to_be_visible(timeout=patience(30) * 1000)
    check_accessibility(page, "real-estimate")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".card .state.succeeded")).to_be_visible(timeout=patience(30) * 1000)
    expect(replayed).to_be_visible()
    page.get_by_label("Type the project's name").fill("handbook")
    page.get_by_role("button", name="Roll back").click()
    expect(first).to_be_visible()
    page.get_by_label("Type the project's name").fill("handbook")
    page.get_by_role("button", name="Switch to it").click()
    expect(replayed).to_be_visible()


def compare_evaluations(deployment: Deployment, page: Page, directory: Path) -> None:
    """Saved evaluations are listed, and compared question by question."""
    questions = directory / "locks"
    questions.mkdir()
    documents = {"a": "Locks lift ships.", "b": "Weirs hold water back.", "c": "Pumps move water."}
    (questions / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in documents.items())
    )
    (questions / "queries.jsonl").write_text(
        "".join(
            json.dumps({"_id": key, "text": text}) + "\n"
            for key, text in {"1": "locks for ships", "2": "moving water"}.items()
        )
    )
    (questions / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tc\t1\n")
    for mode in ("keyword", "hybrid"):
        deployment.run("eval", str(questions), "--mode", mode, "--save")
    [project] = [
        row["project"]
        for row in json.loads(deployment.run("status", "--json").stdout)["projects"]
        if "locks" in row["project"]
    ]
    page.goto(f"/evaluations?project={project}")
    expect(page.locator("#scores-table tbody tr")).to_have_count(2)
    page.locator("canvas").wait_for()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row", name="difference")).to_be_visible()
    page.get_by_text("Both answers").first.click()

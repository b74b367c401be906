"""The screen to ask and the screen of a document, as a person uses them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from events.models import Like
from tests.support.browser import Opened, check_accessibility, wait_for_script
from tests.support.site import Contents


def test_results_come_while_one_types(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.locator("#q").press_sequentially("retries", delay=10)
        expect(page.locator("article")).to_have_count(2)
        expect(page).to_have_url(re.compile(r"q=retries"))
        expect(page.locator("#q")).to_be_focused()
        page.get_by_text("Words", exact=True).first.click()
        expect(page).to_have_url(re.compile(r"mode=keyword"))


def test_one_question_of_fast_typing_is_asked(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.locator("#q").press_sequentially("connection", delay=5)
        expect(page).to_have_url(re.compile(r"[?&]q=connection(&|$)"))
    assert contents.asked[-1].text == "connection"
    assert len(contents.asked) < len("connection")


def test_an_answer_stays_when_the_field_loses_the_focus(opened: Opened) -> None:
    """The field reports its change then, although the question has its answer already."""
    contents = Contents.full()
    with opened(contents) as page:
        page.locator("#q").press_sequentially("retries", delay=5)
        expect(page).to_have_url(re.compile(r"[?&]q=retries(&|$)"))
        expect(page.locator("article")).to_have_count(2)
        expect(page.locator("#ask")).not_to_have_class(re.compile("htmx-request"))
        asked = len(contents.asked)
        page.locator("article").first.locator("details.why summary").click()
        page.get_by_text("Words", exact=True).first.click()
        expect(page).to_have_url(re.compile(r"mode=keyword"))
    assert [question.mode for question in contents.asked[asked:]] == ["keyword"]


def test_keyboard_alone(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.keyboard.type("retry")
        page.keyboard.press("Enter")
        expect(page.locator("article")).to_have_count(2)
        # typing asked too: a later answer would replace the results, and take the focus away
        expect(page.locator("#ask")).not_to_have_class(re.compile("htmx-request"))
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("j")
        expect(page.locator("article").nth(1)).to_be_focused()
        page.keyboard.press("k")
        expect(page.locator("article").first).to_be_focused()
        page.keyboard.press("e")
        expect(page.locator("article").first.locator("table")).to_be_visible()
        page.keyboard.press("y")
        expect(page.get_by_role("button", name="copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == "client/connection.py:1-25"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("client/connection.py")
        page.wait_for_load_state()  # the script that hears keys runs after the text is shown
        page.keyboard.press("/")
        expect(page.locator("#q")).to_be_focused()
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.wait_for_url("**/ask?*")
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_url("**/sources?*")
        page.keyboard.press("?")
        expect(page.locator("#keys dl")).to_be_visible()


def test_without_script_the_form_and_the_links_work(opened: Opened) -> None:
    with opened(Contents.full(), script=False) as page:
        page.locator("#q").fill("retry")
        page.get_by_role("radio", name="Meaning").check(force=True)
        page.get_by_role("button", name="Ask").click()
        expect(page.locator("article")).to_have_count(2)
        assert "mode=vector" in page.url
        expect(page.get_by_role("button", name="copy")).to_have_count(0)
        page.get_by_role("link", name="docs/retries.md:1-6").click()
        expect(page.locator(".row.marked")).to_have_count(6)
        page.get_by_role("link", name="Dead letters").first.click()
        expect(page.locator(".letters li")).to_have_count(3)


def test_marks_are_the_words_that_share_a_stem(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.goto("/ask?q=retried+connectTimeout")
        marks = set(page.locator("article mark").all_inner_texts())
    assert {"retry", "Retries", "connect", "timeout"} <= marks
    assert not {"the", "attempt"} & marks


def test_only_web_addresses_become_links_to_outside(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.goto("/ask?q=retry")
        permalinks = page.get_by_role("link", name="permalink")
        expect(permalinks).to_have_count(1)
        assert permalinks.get_attribute("href") == "https://example.org/1"
        assert permalinks.get_attribute("rel") == "noopener noreferrer"
        page.goto("/document?uri=client/connection.py")
        expect(page.get_by_role("link", name="https://example.org/x")).to_be_visible()
        _has_no_script_link(page)


def _has_no_script_link(page: Page) -> None:
    links = page.locator("a").evaluate_all("links => links.map(link => link.protocol)")
    assert set(links) <= {"http:", "https:"}


def test_similar_results_and_judgements(opened: Opened) -> None:
    """A link asks for what is like a result, and two buttons judge it, also without JavaScript."""
    contents = Contents.full()
    for script in (True, False):
        with opened(contents, script=script) as page:
            page.goto("/ask?q=retry")
            if script:
                wait_for_script(page)
            result = page.locator("article").nth(1)
            result.get_by_role("button", name="not useful").click()
            expect(page.locator(".judged")).to_have_text("Judged as not useful.")
            assert page.locator("article").count() == (2 if script else 0)
            if script:
                check_accessibility(page, "judged")
            else:
                page.get_by_role("link", name="Answer").click()
            result.get_by_role("link", name="similar").click()
            expect(page.get_by_role("status")).to_contain_text("similar to docs/retries.md:1")
            expect(page.locator("form.judge")).to_have_count(0)
            expect(page.get_by_label("Similar to")).to_have_value("docs/retries.md:1")
            page.goto("/ask?q=symbol:retry")
            expect(page.locator(".notice")).to_have_text("1 match in 1 document.")
            expect(page.locator("form.judge")).to_have_count(0)
    assert contents.done == [("judge", "default", 2, "rejected")] * 2
    assert [question.like for question in contents.asked if not question.text] == [
        Like(uri="docs/retries.md", line=1)
    ] * 2


def test_nothing_found_offers_another_mode(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.goto("/ask?q=nothing&kind=code")
        expect(page.get_by_text("Nothing found.")).to_be_visible()
        expect(page.get_by_text("default has 2 documents")).to_be_visible()
        page.get_by_role("link", name="By words").click()
        expect(page).to_have_url(re.compile("mode=keyword"))
        assert "kind=code" in page.url


@pytest.mark.parametrize("address", ["#L14-L20", "?lines=14-20"])
def test_a_citation_opens_the_document_at_its_lines(opened: Opened, address: str) -> None:
    query = address if address.startswith("?") else ""
    anchor = address if address.startswith("#") else "#L14"
    with opened(Contents.full()) as page:
        page.goto(f"/document{query or '?'}&uri=client/connection.py{anchor}")
        expect(page.locator(".row.marked")).to_have_count(7)
        expect(page.locator("#L14")).to_be_in_viewport()
        assert (
            page.locator("#L14 code").inner_text().strip() == '"""Connect, and retry three times.'
        )


def test_a_long_document_is_paged_line_by_line(opened: Opened) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 1501))
    with opened(Contents(texts={"long.txt": text})) as page:
        page.goto("/document?uri=long.txt&lines=1300-1301")
        expect(page.locator("#L1300 code")).to_have_text("line 1300")
        expect(page.locator(".row.marked")).to_have_count(2)
        page.get_by_role("link", name="Former lines").click()
        expect(page.locator("#L601 code")).to_have_text("line 601")
        page.get_by_role("link", name="Next lines").click()
        expect(page.locator(".row").last).to_have_id("L1500")


def test_a_failed_question_keeps_the_form(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        contents.failing = True
        page.locator("#q").press_sequentially("retry", delay=10)
        expect(page.get_by_role("alert")).to_contain_text("Postgres can't be reached")
        expect(page.locator("#q")).to_have_value("retry")
        contents.failing = False
        page.locator("#q").press_sequentially(" connect", delay=10)
        expect(page.locator("article")).to_have_count(2)

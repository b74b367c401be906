"""Screens of operators: nothing changes before its extent was shown and confirmed."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.support.browser import Opened
from tests.support.site import Contents


def test_letters_of_a_filter_are_redriven_after_their_count_was_shown(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.goto("/dead-letters")
        page.get_by_role("link", name="LimitExceeded").first.click()
        expect(page.get_by_text("docs/<b>x</b>.md")).to_have_count(2)
        page.get_by_role("button", name="Redrive all 2 …").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Redrive 2 dead letters?")
        assert not contents.done
        page.get_by_role("button", name="Redrive 2").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("2 letters redriven")
        expect(page.locator("tbody tr")).to_have_count(2)
    assert [letter.error for letter in contents.letters] == ["MalformedEvent"]


def test_redriven_changes_are_followed_to_their_outcome(opened: Opened) -> None:
    contents = Contents.full()
    contents.unhandled = True
    with opened(contents) as page:
        page.goto("/dead-letters")
        page.get_by_role("button", name="Redrive all 3 …").click()
        page.get_by_role("button", name="Redrive 3").click()
        expect(page.locator(".state.waiting")).to_have_count(3)
        contents.unhandled = False
        expect(page.locator(".state.indexed")).to_have_count(3)
        page.get_by_role("link", name="come back to this page").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Redriven changes")
        expect(page.get_by_role("link", name="docs/broken.md")).to_have_count(3)


def test_the_outcome_before_the_redrive_does_not_count(opened: Opened) -> None:
    later_ms = 9 * 10**12
    with opened(Contents.full()) as page:
        page.goto(f"/dead-letters/outcomes?change=default/live:0:1-0@{later_ms}")
        expect(page.locator(".state")).to_have_text("waiting")
        response = page.goto("/dead-letters/outcomes?change=<b>")
        assert response is not None
        assert response.status == 422
        page.goto("/dead-letters/outcomes")
        expect(page.get_by_text("The address names no change")).to_be_visible()


def test_letters_that_came_in_since_are_not_touched(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.goto("/dead-letters")
        page.get_by_role("button", name="Drop all 3 …").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Drop 3 dead letters?")
        contents.letters += Contents.full().letters[:1]
        page.get_by_role("button", name="Drop 3").click()
        expect(page.get_by_role("alert")).to_contain_text("selects 4 letters, not 3")
    assert len(contents.letters) == 4


def test_chosen_letters(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents, script=False) as page:
        page.goto("/dead-letters")
        page.get_by_role("button", name="Redrive the chosen …").click()
        expect(page.get_by_role("alert")).to_contain_text(
            "no dead letter was chosen", ignore_case=True
        )
        page.goto("/dead-letters")
        page.get_by_role("checkbox").nth(1).check()
        page.get_by_role("button", name="Redrive the chosen …").click()
        page.get_by_role("button", name="Redrive 1").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("1 letter redriven")
    assert contents.done == [("redrive", ["document.changed.live/0/2-0"])]


def test_a_letter_shows_its_event_with_the_wrong_field_marked(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.goto("/dead-letters")
        page.get_by_role("link", name="document.changed.live/0/1-0").click()
        expect(page.locator("pre mark")).to_have_text(re.compile('"uri": "docs/<b>x</b>.md"'))


def test_a_replay_is_estimated_then_started_and_stopped(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.goto("/generations")
        page.get_by_label("Model").fill("local/other")
        expect(page.get_by_role("button", name="Start")).to_have_count(0)
        page.get_by_role("button", name="Estimate").click()
        expect(page.get_by_text("4,200")).to_be_visible()
        expect(page.get_by_label("Model")).to_have_value("local/other")
        page.get_by_role("button", name="Start").click()
        expect(page.get_by_text("build: 420 of 1,000")).to_be_visible()
        contents.advance_replay(done=900)
        expect(page.get_by_text("build: 900 of 1,000")).to_be_visible()
        # a page that is closed while it loads another may never answer
        with page.expect_navigation():
            page.get_by_role("button", name="Stop the replay").click()
        expect(page.get_by_role("article", name="Replay").locator(".state")).to_have_text("stopped")
    kinds = [work[0] for work in contents.done]
    assert kinds == ["replay", "replay", "stop"]
    assert [work[2].get("dry_run", False) for work in contents.done[:2]] == [True, False]


def test_the_forms_know_the_generations_as_soon_as_a_replay_has_ended(opened: Opened) -> None:
    contents = Contents.full()
    former, live = contents.generations
    contents.generations = [live]
    with opened(contents) as page:
        page.goto("/generations?replay=r1")
        expect(page.get_by_role("button", name="Roll back")).to_have_count(0)
        contents.generations = [former, live]
        contents.advance_replay(state="succeeded")
        expect(page.get_by_role("button", name="Roll back")).to_be_visible()


def test_switch_and_drop_need_the_name_of_the_project(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        for button in ("Switch to it", "Roll back", "Drop it"):
            page.goto("/generations")
            page.get_by_label("Type the project's name").fill("notes")
            page.get_by_role("button", name=button).click()
            expect(page.get_by_role("alert")).to_contain_text("is not default")
            assert not contents.done
        for button in ("Switch to it", "Roll back", "Drop it"):
            page.goto("/generations")
            page.get_by_label("Type the project's name").fill("default")
            page.get_by_role("button", name=button).click()
            page.wait_for_url("**/generations?project=default&replay=r1")
    assert contents.done == [
        ("switch", "default", 1),
        ("rollback", "default"),
        ("drop", "default", 1),
    ]


def test_streams_are_read_again_and_recover_from_a_failure(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.goto("/streams")
        expect(page.get_by_role("region", name="Workers")).to_be_visible()
        contents.failing = True
        expect(page.get_by_role("alert")).to_contain_text("Postgres can't be reached")
        contents.failing = False
        expect(page.get_by_role("region", name="Workers")).to_be_visible()


def test_a_batch_is_followed_to_its_end(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.goto("/batch?id=b1")
        expect(page.get_by_text("812 of 1,200 changes handled, 388 wait")).to_be_visible()
        contents.advance_batch(indexed=1188, waiting=0)
        expect(page.get_by_text("This batch is done.")).to_be_visible()
        expect(page.get_by_text("content is not UTF-8")).to_be_visible()


def test_what_was_opened_stays_open_while_a_sync_is_followed(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        page.goto("/sources")
        page.get_by_text("Sync again, or forget it").click()
        contents.advance_batch(indexed=1000, waiting=188)
        expect(page.get_by_text("1,012 of 1,200 changes handled")).to_be_visible()
        expect(page.get_by_text("A sync runs where the files are:")).to_be_visible()


def test_changes_rejected_during_a_sync_appear_while_it_is_followed(opened: Opened) -> None:
    contents = Contents.full()
    contents.advance_batch(rejected=0)
    with opened(contents) as page:
        page.goto("/sources")
        expect(page.get_by_text("No change was rejected.")).to_be_visible()
        contents.advance_batch(rejected=2, waiting=188)
        expect(page.get_by_role("link", name="docs/broken.md")).to_be_visible()
        expect(page.get_by_text("No change was rejected.")).to_have_count(0)


def test_two_evaluations_are_compared_question_by_question(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        page.goto("/evaluations")
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_text("6 worse, 0 better")).to_be_visible()
        difference = page.get_by_role("row", name="difference")
        expect(difference).to_contain_text("-0.0300")
        expect(difference).to_contain_text("of nDCG@10: -0.0300 to -0.0300 (95 %)")
        page.get_by_text("Both answers").first.click()
        expect(page.get_by_role("link", name="2.md").first).to_be_visible()
        expect(page.get_by_role("link", name="3.md").first).to_be_visible()
        page.get_by_role("link", name="question 0").click()
        expect(page.locator("#q")).to_have_value("question 0")

"""Every screen: full, empty and failing, in both schemes, without a finding of axe."""

from __future__ import annotations

from tests.support.browser import Opened, check_accessibility
from tests.support.site import Contents

LETTER = "document.changed.live/0/1-0"
SCREENS = {
    "ask-start": "/ask",
    "ask": "/ask?q=retry+connect+timeout",
    "ask-grouped": "/ask?q=retry&grouped=1&context=512",
    "ask-nothing": "/ask?q=nothing",
    "ask-similar": "/ask?like=docs/retries.md:1",
    "documents": "/documents",
    "document": "/document?uri=client/connection.py&lines=14-20",
    "document-missing": "/document?uri=gone.md",
    "sources": "/sources",
    "batch": "/batch?id=b1",
    "streams": "/streams",
    "dead-letters": "/dead-letters",
    "dead-letter": f"/dead-letter?id={LETTER}",
    "generations": "/generations?replay=r1",
    "evaluations": "/evaluations",
    "evaluation": "/evaluation?a=2&b=3",
}
LISTS = ("documents", "sources", "streams", "dead-letters", "generations", "evaluations")


def test_full_screens(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        for name, address in SCREENS.items():
            response = page.goto(address)
            assert response is not None
            assert response.status == (404 if name == "document-missing" else 200), name
            assert page.get_by_role("heading", level=1).count() == 1
            if name in ("streams", "evaluations"):
                page.locator("canvas").first.wait_for()
            check_accessibility(page, name)


def test_empty_screens_say_how_to_fill_them(opened: Opened) -> None:
    hints = {
        "ask-start": "headrace sync PATH",
        "documents": "headrace sync PATH",
        "sources": "headrace sync PATH",
        "streams": "headrace worker",
        "dead-letters": "No dead letters",
        "generations": "has no generation",
        "evaluations": "headrace eval DIR --save",
    }
    with opened(Contents.empty()) as page:
        for name, hint in hints.items():
            page.goto(SCREENS[name].partition("?")[0])
            assert hint in page.locator(".empty").first.inner_text()
            check_accessibility(page, f"{name}-empty")


def test_failing_screens_show_the_problem_and_its_remedy(opened: Opened) -> None:
    contents = Contents.full()
    with opened(contents) as page:
        contents.failing = True
        for name in (*LISTS, "ask", "document", "batch"):
            response = page.goto(SCREENS[name])
            assert response is not None
            assert response.status == 503, name
            problem = page.get_by_role("alert")
            assert "Postgres can't be reached." in problem.inner_text()
            assert "Check that it runs." in problem.inner_text()
            if name in ("documents", "ask", "document"):  # one of each layout
                check_accessibility(page, f"{name}-failing")


def test_screens_fit_a_small_window_and_200_percent(opened: Opened) -> None:
    with opened(Contents.full(), width=600) as page:  # 1,200 pixels at 200 %
        for name, address in SCREENS.items():
            page.goto(address)
            width = page.locator("body").evaluate("body => body.scrollWidth")
            assert width <= 600, name
            page.set_viewport_size({"width": 390, "height": 800})  # a telephone
            assert page.locator("body").evaluate("body => body.scrollWidth") <= 390, name
            page.set_viewport_size({"width": 600, "height": 800})
            if name == "document":
                check_accessibility(page, f"{name}-narrow")


def test_without_operator_there_are_three_screens(opened: Opened) -> None:
    with opened(Contents(operator=False)) as page:
        names = page.get_by_role("navigation", name="Screens").get_by_role("link")
        assert names.all_inner_texts() == ["Ask", "Documents", "Sources"]
        response = page.goto("/streams")
        assert response is not None
        assert response.status == 403


def test_pages_stay_small(opened: Opened) -> None:
    with opened(Contents.full()) as page:
        sizes: dict[str, int] = {}
        page.on(
            "requestfinished",
            lambda request: sizes.update({request.url: request.sizes()["responseBodySize"]}),
        )
        for name, limit_bytes in (("ask", 40_000), ("streams", 80_000), ("documents", 40_000)):
            sizes.clear()
            page.goto(SCREENS[name], wait_until="networkidle")
            assert sum(sizes.values()) <= limit_bytes, (name, sizes)

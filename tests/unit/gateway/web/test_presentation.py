from __future__ import annotations

import pytest

from gateway.web.presentation import address, duration, environment, outside_link, static_files
from store.views.batches import BatchProgress


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("https://example.org/a", True),
        ("http://example.org", True),
        ("javascript:alert(1)", False),
        ("JavaScript:alert(1)", False),
        ("data:text/html,x", False),
        ("//example.org", False),
        ("https:", False),
        ("http://[", False),
        ("", False),
        (None, False),
    ],
)
def test_outside_link(url: str | None, link: bool) -> None:
    assert outside_link(url) == (url if link else None)


def test_address_leaves_out_empty_parameters_and_quotes_the_others() -> None:
    assert address("/ask", q="a b&c/ü", mode="", kind=None) == "/ask?q=a%20b%26c/%C3%BC"
    assert address("/ask") == "/ask"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "unknown"), (0.0004, "0 ms"), (1.44, "1.4 s"), (150, "2 min"), (9000, "2.5 h")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_commands_are_code_and_everything_is_escaped() -> None:
    commands = environment().filters["commands"]
    assert commands("run `a <b>`; <i>") == "run <code>a &lt;b&gt;</code>; &lt;i&gt;"
    assert commands("one ` alone") == "one ` alone"


def test_no_file_has_an_address_outside_of_static() -> None:
    names = static_files()
    assert {"page.css", "page.js", "plots.js", "favicon.svg"} <= names.keys()
    assert not any(".." in name or name.startswith("/") for name in names)


def test_changes_that_were_in_the_log_before_are_not_handled_again() -> None:
    """A sync counts them beside the published ones, of which they are no part."""
    progress = BatchProgress(
        published=10,
        indexed=4,
        superseded=1,
        duplicate=90,
        rejected=1,
        waiting=4,
        chunks_added=0,
        tokens_embedded=0,
        cost_usd=0.0,
        per_s=0.0,
        seconds_left=None,
        began_at=None,
        ended_at=None,
    )
    text = environment().get_template("progress.html").render(progress=progress)
    assert "6 of 10 changes handled, 4 wait" in text
    assert 'value="6"' in text

"""Threads of a server on this machine that plays GitHub."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from content.extractors.conversation.extractor import extract
from runtime.errors import HeadraceError, Unavailable, UsageError
from sources import open_source
from sources.github.repository import GitHubSource, ThreadChoice, open_github
from sources.types import Change
from tests.support.github import TOKEN, GitHub, github
from tests.support.syncs import LIMITS as SIZES
from tests.support.syncs import Synced, sync
from tests.support.website import Reply

ALL = ThreadChoice(complete=True)


@pytest.fixture
def server() -> Iterator[GitHub]:
    with github() as server:
        yield server


def opened(server: GitHub, **options: Any) -> GitHubSource:
    chosen: dict[str, Any] = {"api": server.url, "token": TOKEN, "allow_private": True} | options
    return open_github("Mill/race", **chosen)


def publish(
    server: GitHub, before: Synced | None = None, **options: Any
) -> tuple[list[str], Synced]:
    """Sync; returns the changes, such as ``upsert issues/1``, and the state."""
    full = options.pop("full", False)
    changes, after = sync(opened(server, **options), before or Synced(), full=full)
    return sorted(shown(change) for change in changes), after


def shown(change: Change) -> str:
    return f"{change.change} {change.uri.removeprefix('mill/race/')}"


def paths(server: GitHub) -> list[tuple[str, int]]:
    """Return the requests without their queries, except for that of the repository itself."""
    return [(path.partition("?")[0], status) for path, status in server.requests() if path]


def test_a_thread_is_a_conversation(server: GitHub) -> None:
    """Turns have speaker, time and permalink; the rest of a thread is title and metadata."""
    server.open("The gate jams", "It jams at noon.", labels=[{"name": "b"}, {"name": "a"}])
    server.comment(1, "Oil it.")
    server.open("Oil the gate", None, pull=True, milestone={"title": "Spring"})
    server.comment(2, "Why here?", path="gate.py", line=7, user="cy")
    server.edit(2, state="closed", pull_request={"merged_at": "2025-10-09T09:00:00Z"})
    issue, pull = sync(opened(server))[0]
    rendition = extract(str(issue.content).encode())
    turns = [(place.speakers, place.permalink) for place in rendition.places]
    page = "https://github.example.org/mill/Race/issues/1"
    assert turns == [(("ana",), page), (("bo",), server.comments[min(server.comments)]["html_url"])]
    assert [place.time is not None for place in rendition.places] == [True, True]
    assert "Oil it." in rendition.lines[-1]
    assert issue.details is not None
    assert issue.details.title == "The gate jams (#1)"
    assert issue.details.metadata == {
        "repository": "mill/race",
        "type": "issue",
        "state": "open",
        "author": "ana",
        "labels": "a, b",
        "created": "2025-10-09T08:54:20Z",
    }
    assert (issue.uri, pull.uri) == ("mill/race/issues/1", "mill/race/pull/2")
    assert pull.details is not None
    assert pull.details.metadata["state"] == "merged"
    assert (pull.details.metadata["milestone"], pull.details.metadata["author"]) == (
        "Spring",
        "ghost",
    )
    text = "\n".join(extract(str(pull.content).encode()).lines)
    assert "Oil the gate" in text
    assert "`gate.py:7`: Why here?" in text


def test_a_second_sync_reads_no_thread(server: GitHub) -> None:
    """Updates are found by their time, with one request; deleted threads by a complete listing."""
    for title in ("The weir", "The sluice", "The pond", "The mill"):
        server.open(title, title)
    server.comment(2, "Shut.")
    changes, first = publish(server)
    assert changes == [f"upsert issues/{number}" for number in (1, 2, 3, 4)]
    source = opened(server)
    assert TOKEN not in f"{source.key}{source.name}{source.location}{first}"
    assert paths(server) == [("issues", 200), ("issues/2/comments", 200)]
    changes, second = publish(server, first)
    assert (changes, second.report.unchanged) == ([], 4)
    assert second.state == first.state
    assert paths(server) == [("issues", 304)]
    server.edit(1, labels=[{"name": "wet"}])  # the text of its turns is the same
    server.comment(2, "Open.")
    changes, third = publish(server, second)
    assert changes == ["upsert issues/1", "upsert issues/2"]
    server.delete(3)
    server.transfer(4)
    server.erase_comment(max(server.comments))
    changes, fourth = publish(server, third)
    assert changes == ["upsert issues/2"]
    changes, fifth = publish(server, fourth, choice=ALL)
    assert changes == ["delete issues/3", "delete issues/4"]
    assert publish(server, fifth, choice=ALL)[0] == []
    assert publish(server, fifth, full=True)[0] == ["upsert issues/1", "upsert issues/2"]
    assert publish(server, fifth, choice=ThreadChoice(issues=False))[0] == [
        "delete issues/1",
        "delete issues/2",
    ]


def test_many_threads_are_read_with_few_requests(server: GitHub) -> None:
    """Lists have pages; a thread that is updated or deleted meanwhile hides no other thread."""
    for number in range(1, 151):
        server.open(f"Leak {number}", f"Leak {number}.", pull=number % 5 == 0)
        if number % 2:
            server.comment(number, f"Comment {number}.")
    server.comment(150, "Look here.", path="weir.py")
    pages: list[str] = []

    def change(path: str) -> None:
        if "/issues?" in path and len(pages) < 2:
            pages.append(path)
            server.comment(len(pages), "Once more.")
            server.delete(120 - len(pages))

    server.after = change
    _, first = publish(server)
    assert len(pages) == 2
    assert len(paths(server)) < 30
    server.after = lambda _: None
    assert len(publish(server, first)[0]) <= 3
    assert len(paths(server)) < 10
    _, second = publish(server, first, choice=ALL)
    expected = {
        f"mill/race/{'pull' if number % 5 == 0 else 'issues'}/{number}" for number in server.threads
    }
    assert second.indexed.keys() == expected
    assert publish(server, second, full=True)[1].indexed == second.indexed
    paths(server)
    killed = replace(second, state=replace(second.state, files={}))
    assert publish(server, killed)[0] == []
    assert len(paths(server)) < 50
    texts = {
        change.uri: [json.loads(line)["content"] for line in str(change.content).splitlines()]
        for change in sync(opened(server), full=True)[0]
    }
    assert texts["mill/race/issues/1"] == ["Leak 1.", "Comment 1.", "Once more."]
    assert texts["mill/race/issues/147"] == ["Leak 147.", "Comment 147."]
    assert texts["mill/race/pull/150"] == ["Leak 150.", "`weir.py`: Look here."]


def test_an_incomplete_listing_deletes_nothing(server: GitHub) -> None:
    """A thread that a list lacks is asked for; after an error, nothing is deleted."""
    for title in ("The weir", "The sluice"):
        server.open(title, title)
    _, before = publish(server)
    server.hidden = {1}
    changes, after = publish(server, before, choice=ALL)
    assert (changes, after.report.unchanged) == ([], 2)
    server.delete(2)
    server.hidden = {1, 2}
    for status in (500, 502, 403):
        server.refused = [Reply('{"full_name": "mill/Race"}'), Reply("", status)]
        with pytest.raises(HeadraceError, match=r"can't be read|refused access"):
            publish(server, after, choice=ALL)
    server.repository, server.former = "mill/new", "mill/Race"
    assert publish(server, after, choice=ALL)[0] == ["delete issues/2"]
    server.former = "mill/old"
    with pytest.raises(UsageError, match="does not exist, or GITHUB_TOKEN"):
        publish(server, after, choice=ALL)


def test_the_rate_limit_is_kept(server: GitHub) -> None:
    """A short pause is made; a longer one ends the sync before the next request."""
    server.open("The weir", "Low.")
    server.comment(1, "Why?")
    server.allowed, server.reset_at = 1, time.time() + 3_600
    for allowed in (1, 2):
        server.allowed = allowed
        with pytest.raises(Unavailable, match=r"rate limit is used up for the next 3,\d{3} s"):
            publish(server)
        assert [status for _, status in server.requests()] == [200] * allowed
    server.reset_at = time.time() - 1
    assert publish(server)[0] == ["upsert issues/1"]
    server.allowed = None
    server.requests()
    for status in (403, 429):
        server.refused = [Reply("", status, {"Retry-After": "0"})] * 2
        assert publish(server)[0] == ["upsert issues/1"]
        assert [status for _, status in server.requests()] == [status, status, 200, 200, 200]
    server.refused = [Reply("", 429, {"Retry-After": "3600"})]
    with pytest.raises(Unavailable, match="rate limit"):
        publish(server)


def test_a_thread_that_changes_within_a_second_is_read_again(server: GitHub) -> None:
    server.lag = 0
    server.open("The weir", "Low.")
    changes, first = publish(server)
    server.threads[1]["body"] = "High."  # in the same second
    assert publish(server, first)[0] == ["upsert issues/1"]
    server.lag = 30
    changes, second = publish(server, first)
    assert changes == ["upsert issues/1"]
    server.requests()
    assert publish(server, second)[0] == []


def test_only_the_named_server_gets_the_token(server: GitHub) -> None:
    """Another host is not followed, and a private one needs permission."""
    server.open("The weir", "Low.")
    for bad in ("mill", "mill/race/x", "mill/..", "mi ll/race", "../race", ""):
        with pytest.raises(UsageError, match="is not a repository"):
            open_github(bad)
    with pytest.raises(UsageError, match="headrace github OWNER/NAME"):
        open_source("github:mill/race")
    for options in ({"api": "ftp://x"}, {"api": "http://x.example"}, {"token": "a b\n"}):
        with pytest.raises(UsageError, match="GITHUB_"):
            opened(server, **{"allow_private": False} | options)
    with pytest.raises(UsageError, match="not a public address"):
        opened(server, api=server.url.replace("http:", "https:"), allow_private=False).list(SIZES)
    assert server.requests() == []
    with pytest.raises(UsageError, match="refused the token"):
        publish(server, token=TOKEN.upper())
    elsewhere = {"Location": "http://localhost:9/repos/mill/race"}
    server.refused = [Reply("", 301, elsewhere)]
    with pytest.raises(Unavailable, match="leads to another server"):
        publish(server)
    for bad in ("http://localhost:9/x?page=2", "/x", "http://x:123456/"):
        link = {"Link": f'<{bad}>; rel="next"'}
        server.refused = [Reply('{"full_name": "mill/Race"}'), Reply("[]", 200, link)]
        with pytest.raises(Unavailable, match="leads to another server"):
            publish(server)
    for body in ("[]", "{", '{"full_name": "a/../.."}'):
        server.refused = [Reply(body)]
        with pytest.raises(Unavailable, match="is not what the REST API"):
            publish(server)

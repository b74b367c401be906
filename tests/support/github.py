"""Server that plays the part of GitHub's REST API that lists threads, as its documentation says.

See "Issues", "Issue comments", "Pull request review comments", "Using pagination" and "Rate limits"
in https://docs.github.com/en/rest.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from functools import wraps
from typing import Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from sources.github.threads import conversation_of
from tests.support.website import Reply, Website, website

__all__ = ["TOKEN", "GitHub", "github"]

TOKEN = "ghp_of-the-test-server-0123456789"  # noqa: S105 - of a server on this machine
_START = 1_760_000_000
_PREFIX = "/api/v3"
_LISTS = ("issues", "issues/comments", "pulls/comments")

Item = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


def _locked(method: F) -> F:
    """Let a method run while no other one reads or changes the threads."""

    @wraps(method)
    def run(server: GitHub, *arguments: Any, **options: Any) -> Any:
        with server.lock:
            return method(server, *arguments, **options)

    return cast("F", run)


@dataclass
class GitHub:
    """Threads of a repository, with a clock that advances by a minute with each change.

    Attributes:
        repository: current name; a former name is redirected to it.
        allowed: requests until the rate limit is used up; None without a limit.
        reset_at: time at which the limit is renewed, in seconds since 1970.
        lag: seconds from the last change to each response, by the server's clock.
        hidden: numbers of threads that lists lack, though they exist.
        after: called with the address after each response.
    """

    site: Website
    repository: str = "mill/Race"
    former: str = "mill/old"
    allowed: int | None = None
    reset_at: float = 0.0
    lag: int = 30
    hidden: set[int] = field(default_factory=set)
    after: Callable[[str], object] = lambda _: None
    threads: dict[int, Item] = field(default_factory=dict)
    comments: dict[int, Item] = field(default_factory=dict)
    transferred: set[int] = field(default_factory=set)
    refused: list[Reply] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _now: int = _START
    _last: int = 0

    @property
    def url(self) -> str:
        """Address of the API."""
        return self.site.url(_PREFIX)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of commands that use the server."""
        return {"GITHUB_API_URL": self.url, "GITHUB_TOKEN": TOKEN}

    @_locked
    def open(self, title: str, body: str | None = None, *, pull: bool = False, **more: Any) -> int:
        """Open an issue or a pull request, and return its number."""
        self._last += 1
        item = self._item(self._last, "issue", body) | {
            "number": self._last,
            "title": title,
            "state": "open",
            "labels": [],
            "comments": 0,
            **more,
        }
        item["html_url"] = self._page(self._last, pull=pull)
        if pull:
            item["pull_request"] = {"merged_at": None}
        self.threads[self._last] = item
        return self._last

    @_locked
    def comment(self, number: int, body: str, user: str = "bo", **review: Any) -> int:
        """Write a comment, or with ``path`` one of a review; returns its id."""
        thread = self.edit(number)
        identifier = 1_000 + self._now
        item = self._item(identifier, "comment", body) | {"user": {"login": user}}
        url = f"{self.url}/repos/{self.repository}"
        if review:
            item |= {"pull_request_url": f"{url}/pulls/{number}", **review}
        else:
            item["issue_url"] = f"{url}/issues/{number}"
            thread["comments"] += 1
        item["html_url"] = f"{thread['html_url']}#{identifier}"
        self.comments[identifier] = item | {"number": number}
        return identifier

    @_locked
    def edit(self, number: int, **values: Any) -> Item:
        """Change fields of a thread, which updates it."""
        thread = self.threads[number]
        thread |= values | {"updated_at": self._tick()}
        return thread

    @_locked
    def erase_comment(self, identifier: int) -> None:
        """Delete a comment; the thread is not updated."""
        comment = self.comments.pop(identifier)
        self.threads[comment["number"]]["comments"] -= "issue_url" in comment

    @_locked
    def delete(self, number: int) -> None:
        """Delete a thread with its comments."""
        del self.threads[number]
        self.comments = {
            key: item for key, item in self.comments.items() if item["number"] != number
        }

    @_locked
    def transfer(self, number: int) -> None:
        """Move a thread to another repository."""
        self.transferred.add(number)
        self.delete(number)

    @_locked
    def documents(self) -> dict[str, str]:
        """Expected text of each thread by the uri of its document."""
        texts = {}
        for number, thread in self.threads.items():
            comments = [item for item in self.comments.values() if item["number"] == number]
            kind = "pull" if "pull_request" in thread else "issues"
            uri = f"{self.repository.lower()}/{kind}/{number}"
            texts[uri] = conversation_of(thread, comments).decode()
        return texts

    def requests(self) -> list[tuple[str, int]]:
        """Return path below the repository and status of each request since the last call."""
        start = len(f"{_PREFIX}/repos/{self.repository}")
        return [(path[start:].lstrip("/"), status) for path, status in self.site.requests()]

    def reply(self, path: str, headers: Mapping[str, str]) -> Reply:
        """Response to a request."""
        reply = self._limited(path, headers)
        sent = {"Date": formatdate(self._now + self.lag, usegmt=True), **reply.headers}
        if self.allowed is not None:
            sent |= {"X-RateLimit-Remaining": str(self.allowed)}
            sent |= {"X-RateLimit-Reset": str(int(self.reset_at) + 1)}
        self.after(path)
        return Reply(reply.body, reply.status, sent, plain=True)

    @_locked
    def _limited(self, path: str, headers: Mapping[str, str]) -> Reply:
        if self.refused:
            return self.refused.pop(0)
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return Reply('{"message": "Bad credentials"}', 401)
        if self.allowed is not None and time.time() >= self.reset_at + 1:
            self.allowed = None
        if self.allowed == 0:
            return Reply('{"message": "API rate limit exceeded"}', 403)
        reply = self._answer(path)
        if reply.status != 200:
            return reply
        etag = f'W/"{hashlib.sha256(reply.raw).hexdigest()}"'
        if headers.get("If-None-Match") == etag:
            return Reply("", 304, {"ETag": etag})
        if self.allowed is not None:
            self.allowed -= 1
        return Reply(reply.body, 200, {**reply.headers, "ETag": etag})

    def _answer(self, address: str) -> Reply:
        parts = urlsplit(address)
        path = parts.path.removeprefix(f"{_PREFIX}/repos/")
        for name in (self.repository, self.former):
            if f"{path}/".lower().startswith(f"{name}/".lower()):
                break
        else:
            return Reply('{"message": "Not Found"}', 404)
        rest = path[len(name) :].strip("/")
        if name == self.former:
            return Reply("", 301, {"Location": f"{self.url}/repos/{self.repository}"})
        if not rest:
            return _json({"full_name": self.repository, "name": "Race"})
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if rest in _LISTS:
            return self._page_of(self._listed(rest, query), parts.path, query)
        kind, number, *of_comments = rest.split("/")
        if int(number) in self.transferred:
            return Reply("", 301, {"Location": f"{self.url}/repos/mill/pond/issues/1"})
        if int(number) not in self.threads:
            return Reply('{"message": "This issue was deleted"}', 410)
        if not of_comments:
            return _json(self.threads[int(number)])
        comments = [item for item in self._comments(kind) if item["number"] == int(number)]
        return self._page_of(comments, parts.path, query)

    def _comments(self, kind: str) -> list[Item]:
        key = "issue_url" if kind == "issues" else "pull_request_url"
        return [comment for comment in self.comments.values() if key in comment]

    def _listed(self, path: str, query: Mapping[str, str]) -> list[Item]:
        assert query["sort"] == "updated"
        assert query["direction"] == "asc"
        if path == "issues":
            assert query["state"] == "all"
            items = [item for item in self.threads.values() if item["number"] not in self.hidden]
        else:
            items = self._comments(path.partition("/")[0])
        items = [item for item in items if item["updated_at"] > query["since"]]
        return sorted(items, key=lambda item: (item["updated_at"], item["id"]))

    def _page_of(self, items: list[Item], path: str, query: Mapping[str, str]) -> Reply:
        size, page = int(query.get("per_page", "30")), int(query.get("page", "1"))
        assert size <= 100
        headers = {}
        if len(items) > size * page:
            rest = "&".join(f"{key}={value}" for key, value in query.items() if key != "page")
            url = self.site.url(f"{path}?{rest}&page={page + 1}")
            headers["Link"] = f'<{url}>; rel="next", <{url}>; rel="last"'
        return _json(items[size * (page - 1) : size * page], headers)

    def _item(self, identifier: int, kind: str, body: str | None) -> Item:
        now = self._tick()
        user = None if body is None else {"login": "ana"}
        item = {"id": identifier, "body": body, "user": user, "type": kind}
        return item | {"created_at": now, "updated_at": now}

    def _page(self, number: int, *, pull: bool) -> str:
        return (
            f"https://github.example.org/{self.repository}/{'pull' if pull else 'issues'}/{number}"
        )

    def _tick(self) -> str:
        self._now += 60
        return f"{datetime.fromtimestamp(self._now, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _json(value: object, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(json.dumps(value), 200, {"Content-Type": "application/json", **(headers or {})})


@contextmanager
def github() -> Iterator[GitHub]:
    """Serve a repository without threads on a free port of this machine."""
    with website() as site:
        server = GitHub(site)
        site.answer = server.reply
        yield server

"""Source that is the issues and pull requests of a repository of GitHub."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from yarl import URL

from content.extractors.conversation.values import instant
from runtime.errors import Unavailable, UsageError
from sources.files import ContentFile
from sources.github.rest_api import EPOCH, PER_PAGE, Gone, RateLimit, RestApi, is_repository
from sources.github.threads import ListedThread, conversation_of, details_of, number_of_comment
from sources.types import Content, Listing, Read, SizeLimits, WithoutHistory
from sources.web.addresses import origin_of, to_address
from sources.web.fetcher import Fetcher, Manners

__all__ = ["DEFAULT_API", "GitHubSource", "ThreadChoice", "open_github"]

T = TypeVar("T")
_Parts = tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""Thread, and its comments with those of its reviews."""

DEFAULT_API = "https://api.github.com"

_VERSION = 1
"""Increase this with each change of the form of the memory."""
_COMPLETE_EVERY_SECONDS = 24 * 3_600
"""Age of a complete listing from which the next sync makes another, to find deleted threads."""
_SETTLED_SECONDS = 2.0
"""Longest tick of the times of updates; within a tick, a thread can change unnoticed."""


@dataclass(frozen=True, slots=True)
class ThreadChoice:
    """Threads to publish.

    Attributes:
        issues: publish issues.
        pulls: publish pull requests.
        complete: list every thread, also if that was done within a day.
    """

    issues: bool = True
    pulls: bool = True
    complete: bool = False

    def takes(self, thread: ListedThread) -> bool:
        """True if a thread is to be published."""
        return self.pulls if thread.is_pull else self.issues


@dataclass
class _Memory:
    """Knowledge of the last listing.

    Attributes:
        threads: all threads by number, also those that are not published.
        since: time from which the last page of the listing began.
        etag: ETag of that page.
        completed_at: time of the last complete listing in seconds since 1970.
    """

    threads: dict[int, ListedThread] = field(default_factory=dict)
    since: str = EPOCH
    etag: str = ""
    completed_at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Convert to a JSON object."""
        rows = [thread.to_row() for _, thread in sorted(self.threads.items())]
        values = {"since": self.since, "etag": self.etag, "completed_at": self.completed_at}
        return {"version": _VERSION, **values, "threads": rows}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Self:
        """Inverse of ``to_json``; returns an empty memory for another version."""
        if saved.get("version") != _VERSION:
            return cls()
        threads = map(ListedThread.from_row, saved["threads"])
        by_number = {thread.number: thread for thread in threads}
        return cls(by_number, saved["since"], saved["etag"], saved["completed_at"])


def open_github(
    repository: str,
    *,
    api: str = DEFAULT_API,
    token: str | None = None,
    choice: ThreadChoice | None = None,
    allow_private: bool = False,
) -> GitHubSource:
    """Open the threads of a repository; nothing is requested yet.

    Args:
        repository: its name, ``OWNER/NAME``.
        api: address of the REST API.
        token: token to read with; None for what everyone may read.
        choice: threads to publish.
        allow_private: the API may be at an address that is not public, and without TLS.

    Raises:
        UsageError: the name, the address or the token can't be used.
    """
    if not is_repository(repository):
        raise UsageError(
            f"{repository!r:.200} is not a repository of GitHub", "name it as OWNER/NAME"
        )
    base = to_address(api.rstrip("/"))
    if base is None or base.query_string or not (base.scheme == "https" or allow_private):
        raise UsageError(
            "GITHUB_API_URL is not the address of a REST API",
            "give an address such as https://github.example.org/api/v3; one that begins with "
            "http:// needs --allow-private",
        )
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    if token:
        if not (token.isascii() and token.isprintable()):
            raise UsageError("GITHUB_TOKEN is not a token", "remove its line ends and blanks")
        headers["Authorization"] = f"Bearer {token}"
    manners = Manners(
        delay_seconds=0,
        private_origin=origin_of(base) if allow_private else None,
        headers=headers,
        busy_statuses=(503,),
    )
    return GitHubSource(repository.lower(), base, manners, choice or ThreadChoice())


class GitHubSource(WithoutHistory):
    """Source of the threads of a repository. Uris are ``owner/name/issues/7`` and ``…/pull/8``.

    A thread has changed if the time of its last update or the number of its comments has.

    Args:
        repository: name in lower case.
        base: address of the REST API.
        manners: behaviour towards the server, with the token.
        choice: threads to publish.
    """

    kind = "github"

    def __init__(self, repository: str, base: URL, manners: Manners, choice: ThreadChoice) -> None:
        self._repository = repository
        self._base = base
        self._manners = manners
        self._choice = choice
        self._memory = _Memory()
        self._show: Callable[[int], None] = lambda _: None
        self._is_full = False
        self._stop: Callable[[], object] = lambda: None
        self._threads: dict[str, ListedThread] = {}
        self._unsettled: frozenset[int] = frozenset()
        self._url = base
        self._has_all_heads = self._has_all_comments = False
        self._requests = self._requests_for_all = 0
        self._rate_limit = RateLimit()
        self._heads = ContentFile()
        self._comments = ContentFile()

    @property
    def name(self) -> str:
        """Address of the repository in the API."""
        return f"{str(self._base).rstrip('/')}/repos/{self._repository}"

    @property
    def key(self) -> str:
        """Identity, made of the address."""
        return f"github:{self.name}"

    @property
    def location(self) -> str:
        """Address of the repository in the API."""
        return self.name

    def recall(self, memory: Mapping[str, Any], show: Callable[[int], None], *, full: bool) -> None:
        """Take over the threads of the last listing; with ``full``, all are listed again."""
        self._memory, self._show, self._is_full = _Memory.from_json(memory), show, full

    def stop(self) -> None:
        """End a running listing with Unavailable."""
        self._stop()

    def list(self, sizes: SizeLimits) -> Listing:
        """List the threads that were updated since the last listing; once a day, all of them.

        Raises:
            UsageError: the repository does not exist, or must not be read.
            Unavailable: the server can't be reached, or its rate limit is used up, or the listing
                was stopped.
        """
        del sizes
        try:
            memory = asyncio.run(self._list())
        except asyncio.CancelledError:
            raise Unavailable("the listing was stopped", "sync again") from None
        threads = [thread for thread in memory.threads.values() if self._choice.takes(thread)]
        self._threads = {f"{self._repository}/{thread.path}": thread for thread in threads}
        items = sum(thread.comments + thread.is_pull for thread in threads)
        items += 0 if self._has_all_heads else len(threads)
        self._requests_for_all = 2 + items // PER_PAGE
        files = {uri: thread.fingerprint for uri, thread in self._threads.items()}
        return Listing(files, {}, memory=memory.to_json())

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of threads by their uri.

        Raises:
            UsageError, Unavailable: as ``list``.
        """

        def read(uri: str, fingerprint: str) -> Content:
            thread = self._threads[uri]
            parts = self._kept(thread)
            if parts is None:
                try:
                    parts = asyncio.run(self._request(thread))
                except Gone as error:
                    raise FileNotFoundError(str(error)) from None
            head, comments = parts
            raw = conversation_of(head, comments)[: sizes.of(uri) + 1]
            is_settled = thread.number not in self._unsettled
            details = details_of(head, self._repository)
            return Content(raw, fingerprint if is_settled else "", details)

        yield read

    async def _list(self) -> _Memory:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        self._heads, self._comments = ContentFile(), ContentFile()
        self._has_all_comments, self._requests = False, 0
        before = self._memory
        age = time.time() - before.completed_at
        is_complete = self._is_full or self._choice.complete or age >= _COMPLETE_EVERY_SECONDS
        after = _Memory({}, completed_at=time.time())
        if not is_complete:
            after = _Memory(dict(before.threads), before.since, before.etag, before.completed_at)
        async with Fetcher(self._manners) as fetcher:
            api = await RestApi.open(fetcher, self._base, self._repository, self._rate_limit)
            self._url, self._has_all_heads = api.url, is_complete
            listed_at = await self._list_heads(api, after)
            for number in sorted(before.threads.keys() - after.threads.keys()):
                # a list that lacks a thread does not prove that the thread is gone
                await self._keep_if_there(api, number, after)
        self._unsettled = frozenset(
            number
            for number, thread in after.threads.items()
            if (updated := instant(thread.updated)) is None
            or listed_at - updated.timestamp() < _SETTLED_SECONDS
        )
        return after

    async def _list_heads(self, api: RestApi, memory: _Memory) -> float:
        """Add the threads that were updated since ``memory.since``; returns the server's time."""
        listed_at = None
        pages = api.pages("issues", memory.since, memory.etag, state="all")
        async for since, page in pages:
            listed_at = page.at if listed_at is None else listed_at
            if not page.is_unchanged:
                memory.since, memory.etag = since, page.etag
            for head in page.items:
                self._keep(head, memory)
            self._show(len(memory.threads))
        return time.time() if listed_at is None else listed_at

    async def _keep_if_there(self, api: RestApi, number: int, memory: _Memory) -> None:
        try:
            self._keep(await api.thread(number), memory)
        except Gone:
            return

    def _keep(self, head: Mapping[str, Any], memory: _Memory) -> None:
        thread = ListedThread.of(head)
        if thread is not None:
            memory.threads[thread.number] = thread
            self._heads.keep(str(thread.number), json.dumps(head).encode())

    def _kept(self, thread: ListedThread) -> _Parts | None:
        """Thread with its comments, as far as they were listed; None if a request is needed."""
        saved = self._heads.read(str(thread.number))
        if saved is None:
            return None
        head = json.loads(saved)
        count = head.get("comments")
        if not count and not thread.is_pull:
            return head, ()
        lines = (self._comments.read(str(thread.number)) or b"").splitlines()
        comments = [json.loads(line) for line in lines]
        # a comment may be listed twice: the later version counts
        by_id = {(comment.get("id"), "path" in comment): comment for comment in comments}
        is_current = count == sum(not of_review for _, of_review in by_id)
        return (head, [*by_id.values()]) if self._has_all_comments and is_current else None

    async def _request(self, thread: ListedThread) -> _Parts:
        """Read a thread with its comments; raises Gone.

        As soon as threads have cost as many requests one by one as all comments would together,
        all are read at once. So a sync sends about twice as many requests as needed, at most.
        """
        async with Fetcher(self._manners) as fetcher:
            api = RestApi(fetcher, self._url, self._rate_limit)
            if not self._has_all_comments and self._requests >= self._requests_for_all:
                await self._read_all(api)
                if (parts := self._kept(thread)) is not None:
                    return parts
            saved = self._heads.read(str(thread.number))
            head = json.loads(saved) if saved else await self._counted(api.thread(thread.number))
            kinds = ["issues"] if head.get("comments") else []
            kinds += ["pulls"] if thread.is_pull else []
            comments: list[Mapping[str, Any]] = []
            for kind in kinds:
                comments += await self._counted(api.comments(kind, thread.number))
            return head, comments

    async def _counted(self, request: Awaitable[T]) -> T:
        self._requests += 1
        return await request

    async def _read_all(self, api: RestApi) -> None:
        if not self._has_all_heads:
            await self._list_heads(api, _Memory())
        for path in ("issues/comments", "pulls/comments"):
            async for _, page in api.pages(path, EPOCH):
                for comment in page.items:
                    number = number_of_comment(comment)
                    self._comments.add(str(number), json.dumps(comment).encode() + b"\n")
        self._has_all_heads = self._has_all_comments = True

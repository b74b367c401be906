"""Threads of GitHub: their rows in a listing, and their text as a conversation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from content.extractors.conversation.values import address, items, members, string
from sources.types import Details

__all__ = ["ListedThread", "conversation_of", "details_of", "number_of_comment"]

_LONGEST_TITLE = 480
_LONGEST_VALUE = 2_000
_NOBODY = "ghost"
"""Name under which GitHub shows accounts that were deleted."""
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_THREAD = re.compile(r".*/(?:issues|pulls)/(\d{1,18})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListedThread:
    """Issue or pull request as a listing shows it.

    Attributes:
        updated: time of the last update in ISO 8601.
        comments: number of comments, without those of reviews.
    """

    number: int
    updated: str
    comments: int
    is_pull: bool

    @classmethod
    def of(cls, thread: Mapping[str, Any]) -> Self | None:
        """Row of a thread; None if it is not one."""
        number, updated = thread.get("number"), thread.get("updated_at")
        comments = thread.get("comments")
        if not isinstance(number, int) or not isinstance(updated, str):
            return None
        count = comments if isinstance(comments, int) else 0
        return cls(number, updated, count, "pull_request" in thread)

    @property
    def fingerprint(self) -> str:
        """Text that changes with each update, and with each comment that is deleted."""
        return f"{self.updated}.{self.comments}"

    @property
    def path(self) -> str:
        """Path of the thread in its repository, such as ``issues/7``."""
        return f"{'pull' if self.is_pull else 'issues'}/{self.number}"

    def to_row(self) -> Sequence[int | str]:
        """Convert to a list of JSON."""
        return [self.number, self.updated, self.comments, int(self.is_pull)]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        """Inverse of ``to_row``."""
        number, updated, comments, is_pull = row
        return cls(number, updated, comments, bool(is_pull))


def number_of_comment(comment: Mapping[str, Any]) -> int | None:
    """Number of the thread of a comment. Returns None if it names none."""
    url = string(comment.get("issue_url"), comment.get("pull_request_url"))
    match = _THREAD.fullmatch(url)
    return int(match[1]) if match else None


def conversation_of(thread: Mapping[str, Any], comments: Iterable[Mapping[str, Any]]) -> bytes:
    """Render a thread as lines of JSON, a message per line, in the order of their times.

    The first line has also the title, the state and the labels. So a thread whose labels have
    changed has another text.

    Args:
        thread: the issue or pull request.
        comments: its comments and those of its reviews, in any order.
    """
    first = _message(thread, string(thread.get("body"), thread.get("title")))
    details = details_of(thread, "")
    lines = [{**first, "title": details.title, "metadata": details.metadata}]
    lines += (_message(comment, _text_of(comment)) for comment in sorted(comments, key=_order))
    texts = (json.dumps(line, ensure_ascii=False) for line in lines)
    return "\n".join(texts).encode("utf-8", "replace")


def details_of(thread: Mapping[str, Any], repository: str) -> Details:
    """Title and metadata of a thread of ``repository`` (``OWNER/NAME``)."""
    pull = members(thread.get("pull_request"))
    is_merged = bool(string(pull.get("merged_at")))
    labels = (string(members(label).get("name"), label) for label in items(thread.get("labels")))
    facts = {
        "repository": repository,
        "type": "pull request" if "pull_request" in thread else "issue",
        "state": "merged" if is_merged else string(thread.get("state")),
        "author": _speaker(thread),
        "labels": ", ".join(sorted(filter(None, labels))),
        "milestone": string(members(thread.get("milestone")).get("title")),
        "created": string(thread.get("created_at")),
        "closed": string(thread.get("closed_at")),
    }
    shown = {name: _plain(value)[:_LONGEST_VALUE] for name, value in facts.items() if value}
    title = _plain(string(thread.get("title")))[:_LONGEST_TITLE]
    number = thread.get("number")
    return Details("conversation", None, f"{title} (#{number})".lstrip(), shown)


def _message(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {
        "role": "user",
        "id": str(message.get("id")),
        "name": _speaker(message),
        "timestamp": string(message.get("created_at")),
        "permalink": address(message.get("html_url")),
        "content": text,
    }


def _text_of(comment: Mapping[str, Any]) -> str:
    """Text of a comment; one of a review begins with the lines that it is about."""
    text, path = string(comment.get("body")), string(comment.get("path"))
    line = comment.get("line") or comment.get("original_line")
    if not path or not text:
        return text
    return f"`{path}:{line}`: {text}" if isinstance(line, int) else f"`{path}`: {text}"


def _order(comment: Mapping[str, Any]) -> tuple[str, int]:
    identifier = comment.get("id")
    return string(comment.get("created_at")), identifier if isinstance(identifier, int) else 0


def _speaker(message: Mapping[str, Any]) -> str:
    return string(members(message.get("user")).get("login")) or _NOBODY


def _plain(text: str) -> str:
    return " ".join(_NOT_TEXT.sub(" ", text).split())

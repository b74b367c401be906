"""Mailbox (mbox) as threads of turns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from content.extractors.draft import Draft
from content.extractors.email.message import Mail, MailMessage, MessageWriter, mail_of, parse
from content.rendition import Place
from runtime.errors import Damaged, LimitExceeded

__all__ = ["put_threads"]

MOST_MESSAGES = 20_000
_SEPARATOR = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\r\n]{0,998}\r?\n")
_QUOTED_SEPARATOR = re.compile(rb"(?m)^>(>*From )")
_REPLY_PREFIX = re.compile(r"(?:(?:re|aw|fwd?|wg|sv|antw)\s*(?:\[\d+\])?:\s*)+", re.IGNORECASE)
_LEAD_IN = re.compile(r".*(?:@|\b(?:wrote|writes|schrieb|\xe9crit|escribi\xf3)\b).*:")
"""Line before a quotation: ``On Monday, Ana wrote:``."""
_ORIGINAL = re.compile(
    r"-{2,} ?(?:Original Message|Forwarded message|Urspr.{1,12}Nachricht) ?-{2,}"
)
_LEAD_IN_START = re.compile(r"\s*(?:On|Am|Le|El|Op|Il|Den)\s")
_NEAR_LINES = 4
_MOST_LEAD_IN_CHARACTERS = 400
_BLOCK = re.compile(r"\s*$| {4}|\t| {0,3}(?:```|~~~|[-*+>|]\s|>|#{1,6}\s|\d{1,9}[.)]\s)")
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Letter:
    """Message of the mailbox; ``number`` is its position, from 0."""

    number: int
    mail: Mail
    message: MailMessage


def put_threads(draft: Draft, raw: bytes) -> str | None:
    """Append a mailbox as sections, one for each thread, with a turn for each message.

    Quotations of the other messages of a thread are left out. Returns the subject if there is a
    single thread, else None.

    Raises:
        Damaged: there is no message.
        LimitExceeded: there are more than 20,000 messages, or more than 8 MiB of text.
    """
    letters = [
        _Letter(number, mail_of(message), message)
        for number, message in enumerate(map(parse, _messages(raw)))
    ]
    threads = _threads(letters)
    turns = 0
    for thread in threads:
        name = _subject(thread[0].mail)
        first = replace(thread[0].mail.place, fragment=f"turns={turns + 1}")
        draft.heading(1, name, first, alone=True)
        for letter in thread:
            turns += 1
            place = replace(letter.mail.place, fragment=f"turns={turns}")
            _put_turn(draft, letter, place, is_alone=len(thread) == 1)
    return _subject(threads[0][0].mail) if len(threads) == 1 else None


def _messages(raw: bytes) -> Iterator[bytes]:
    """Split a mailbox at its lines that begin with ``From`` after a blank line."""
    starts: list[re.Match[bytes]] = []
    for match in _SEPARATOR.finditer(raw):
        starts.append(match)
        if len(starts) > MOST_MESSAGES:
            raise LimitExceeded(
                f"the mailbox has more than {MOST_MESSAGES:,} messages",
                "publish its threads as documents of their own",
            )
    if not starts:
        raise Damaged("the bytes are not a mailbox", "publish its messages as .eml files")
    ends = [match.start() for match in starts[1:]] + [len(raw)]
    for match, end in zip(starts, ends, strict=True):
        yield _QUOTED_SEPARATOR.sub(rb"\1", raw[match.end() : end])


def _threads(letters: Sequence[_Letter]) -> Sequence[Sequence[_Letter]]:
    """Group messages by the messages that they refer to; threads are in order of their first."""
    thread_of: dict[str, int] = {}  # by message id, also of messages that are missing
    parents = list(range(len(letters)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    for letter in letters:
        for identifier in (letter.mail.id, *letter.mail.references):
            if identifier:
                other = root(thread_of.setdefault(identifier, letter.number))
                own = root(letter.number)
                parents[max(own, other)] = min(own, other)
    threads: dict[int, list[_Letter]] = {}
    for letter in letters:
        threads.setdefault(root(letter.number), []).append(letter)
    return [
        sorted(thread, key=lambda letter: (letter.mail.time or _LATEST, letter.number))
        for thread in threads.values()
    ]


def _subject(mail: Mail) -> str:
    return _REPLY_PREFIX.sub("", mail.subject, count=1).strip() or "(no subject)"


def _put_turn(draft: Draft, letter: _Letter, place: Place, *, is_alone: bool) -> None:
    mail = letter.mail
    body = Draft()
    MessageWriter(body).put_body(letter.message, Place())
    rendition = body.rendition()
    for warning in rendition.warnings:
        draft.warn(warning)
    lines = rendition.lines if is_alone else _without_quotations(rendition.lines)
    time = f" ({mail.time:%Y-%m-%d %H:%M})" if mail.time is not None else ""
    start = f"**{mail.name or '?'}**{time}:"
    draft.gap()
    draft.section(2, mail.name or "?")
    if not lines or _BLOCK.match(lines[0]):
        draft.put(start, place)
    else:
        draft.put(f"{start} {lines[0]}", place)
        lines = lines[1:]
    for line in lines:
        draft.put(line, place)
    draft.gap()


def _without_quotations(lines: Sequence[str]) -> Sequence[str]:
    """Leave out quotations and the lines that introduce them, unless there is nothing else."""
    kept: list[str] = []
    for line in lines:
        if _ORIGINAL.match(line.strip()):
            break
        if line.lstrip().startswith(">"):
            _drop_lead_in(kept)
        else:
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    while kept and not kept[0].strip():
        kept.pop(0)
    return kept or lines


def _drop_lead_in(kept: list[str]) -> None:
    """Drop the last line if it introduces a quotation; it may be broken in two."""
    filled = [row for row in range(max(0, len(kept) - _NEAR_LINES), len(kept)) if kept[row].strip()]
    last = kept[filled[-1]] if filled else ""
    if len(last) > _MOST_LEAD_IN_CHARACTERS or not _LEAD_IN.fullmatch(last.strip()):
        return
    rows = filled[-2:] if _LEAD_IN_START.match(kept[filled[-2:][0]]) else filled[-1:]
    del kept[rows[0] :]

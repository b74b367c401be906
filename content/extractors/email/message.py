"""Message of e-mail: its headers, and its text as Markdown."""

from __future__ import annotations

import contextlib
import email
import email.utils
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.policy import Compat32
from typing import NamedTuple, TypeAlias

from content.extractors.charsets import decode
from content.extractors.draft import Draft, cleaned
from content.extractors.email.attachments import AttachmentWriter
from content.extractors.html.page import put_page
from content.rendition import Place
from runtime.errors import LimitExceeded

__all__ = ["Mail", "MailMessage", "MessageWriter", "mail_of", "parse"]

MOST_PARTS = 2_000
MOST_DEPTH = 10
_MOST_HEADER_CHARACTERS = 4_000
_MOST_NAME_CHARACTERS = 100
_MOST_METADATA_CHARACTERS = 500
_SIGNATURE = "-- "
MailMessage: TypeAlias = "Message[str, str]"
_UNREADABLE = (MessageError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of the package ``email`` for damaged headers."""


class _Bounded(Compat32):
    """Policy that cuts long headers, since parsing one takes time in square of its length."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """Return name and value of a header."""
        name, value = super().header_source_parse(sourcelines)
        return name, value[:_MOST_HEADER_CHARACTERS]


_BOUNDED = _Bounded()


@dataclass(frozen=True, slots=True)
class Mail:
    """Headers of a message. ``references`` are the ids of earlier ones, the nearest last."""

    subject: str
    sender: str
    name: str
    recipients: str
    copies: str
    time: datetime | None
    id: str
    references: Sequence[str]

    @property
    def metadata(self) -> Mapping[str, str]:
        """Sender and recipients by address, subject, and day in UTC, as far as they are stated."""
        senders, recipients = _addresses(self.sender), _addresses(self.recipients)
        facts = {
            "from": senders[0] if senders else "",
            "to": ", ".join(recipients),
            "subject": self.subject,
            "date": f"{self.time:%Y-%m-%d}" if self.time is not None else "",
        }
        short = {name: cleaned(value)[:_MOST_METADATA_CHARACTERS] for name, value in facts.items()}
        return {name: value for name, value in short.items() if value}

    @property
    def place(self) -> Place:
        """Place of all lines of the message."""
        return Place(fragment="message", speakers=(self.name,) if self.name else (), time=self.time)


def parse(raw: bytes) -> MailMessage:
    """Parse a message.

    Raises:
        LimitExceeded: its parts are nested too deeply.
    """
    try:
        return email.message_from_bytes(raw, policy=_BOUNDED)
    except RecursionError as error:
        raise LimitExceeded(
            "the parts of the message are nested too deeply", "publish its text in another format"
        ) from error


def mail_of(message: MailMessage) -> Mail:
    """Return the decoded headers of a message."""
    sender = _header(message, "From")
    references = f"{_header(message, 'References')} {_header(message, 'In-Reply-To')}"
    return Mail(
        subject=_header(message, "Subject"),
        sender=sender,
        name=_name(sender),
        recipients=_header(message, "To"),
        copies=_header(message, "Cc"),
        time=_time(_header(message, "Date")),
        id=next(iter(_ids(_header(message, "Message-ID"))), ""),
        references=_ids(references),
    )


class _Attachment(NamedTuple):
    """An attached file, with its name, else its media type."""

    name: str
    part: MailMessage


class MessageWriter:
    """Writes messages to a draft, with the messages in them.

    Attachments are extracted by ``writer``; without one they are only named.
    """

    def __init__(self, draft: Draft, writer: AttachmentWriter | None = None) -> None:
        self._draft = draft
        self._writer = writer
        self._parts = 0
        self._attachments: list[_Attachment] = []

    def put_message(self, message: MailMessage, mail: Mail, level: int = 1) -> None:
        """Append the subject as a heading, the other headers, and the text.

        Raises:
            LimitExceeded: there are more than 2,000 parts or more than 8 MiB of text.
        """
        if mail.subject:
            self._draft.heading(level, mail.subject, mail.place)
        headers = {
            "From": mail.sender,
            "To": mail.recipients,
            "Cc": mail.copies,
            "Date": f"{mail.time:%Y-%m-%d %H:%M}" if mail.time is not None else "",
        }
        self._draft.gap()
        for header, value in headers.items():
            if value:
                self._draft.put(f"{header}: {value}", mail.place)
        self.put_body(message, mail.place, level)

    def put_body(self, message: MailMessage, place: Place, level: int = 1) -> None:
        """Append the text, the names of the attachments, and what they contain."""
        outer, self._attachments = self._attachments, []
        self._put_part(message, place, level, 0)
        if self._attachments:
            names = ", ".join(attachment.name for attachment in self._attachments)
            self._draft.block(f"Attachments: {names}", place)
            left_out = [
                attachment.name
                for attachment in self._attachments
                if not self._extracted(attachment, place, level)
            ]
            if left_out:
                self._draft.warn(f"attachments that were not extracted: {', '.join(left_out)}")
        self._attachments = outer

    def _extracted(self, attachment: _Attachment, place: Place, level: int) -> bool:
        """Append what an attachment contains, and return whether it could be extracted."""
        if self._writer is None:
            return False
        raw = attachment.part.get_payload(decode=True)
        media_type = attachment.part.get_content_type()
        return isinstance(raw, bytes) and self._writer.put(
            attachment.name, media_type, raw, level, place
        )

    def _put_part(self, part: MailMessage, place: Place, level: int, depth: int) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise LimitExceeded(
                f"the message has more than {MOST_PARTS:,} parts",
                "publish its text in another format",
            )
        kind, family = part.get_content_type(), part.get_content_maintype()
        name = _file_name(part)
        if depth + level > MOST_DEPTH:
            self._attachments.append(_Attachment(name or kind, part))
        elif kind == "message/rfc822":
            for inner in _children(part):
                self.put_message(inner, mail_of(inner), level + 1)
        elif part.is_multipart():
            children = _children(part)
            for child in _preferred(children) if kind == "multipart/alternative" else children:
                self._put_part(child, place, level, depth + 1)
        elif family == "image" and (part["Content-ID"] or not name):
            pass  # a picture in the text, such as a logo
        elif name or family != "text" or part.get_content_disposition() == "attachment":
            self._attachments.append(_Attachment(name or kind, part))
        elif kind == "text/html":
            put_page(
                self._draft,
                _text(part),
                lambda _identifier, _path: place,
                main_only=False,
                shift=level,
            )
        else:
            self._put_text(part, place)

    def _put_text(self, part: MailMessage, place: Place) -> None:
        lines = cleaned(_text(part)).split("\n")
        if _SIGNATURE in lines:
            lines = lines[: lines.index(_SIGNATURE)]
        if part.get_param("format") == "flowed":
            lines = list(_unfolded(lines))
        text = "\n".join(line.rstrip() for line in lines).strip("\n")
        if text.strip():
            self._draft.block(text, place)


def _children(part: MailMessage) -> Sequence[MailMessage]:
    payload = part.get_payload()
    if not isinstance(payload, list):
        return []
    return [child for child in payload if isinstance(child, Message)]


def _preferred(alternatives: Sequence[MailMessage]) -> Sequence[MailMessage]:
    """Return the plain text, else the last alternative that is no file, as RFC 2046 advises."""
    plain = [part for part in alternatives if part.get_content_type() == "text/plain"]
    plain = [part for part in plain if _text(part).strip()]
    readable = [
        part
        for part in alternatives
        if part.is_multipart() or part.get_content_maintype() == "text"
    ]
    return plain[:1] or readable[-1:] or alternatives[-1:]


def _unfolded(lines: Sequence[str]) -> Iterator[str]:
    """Join the lines of each paragraph of a flowed text (RFC 3676)."""
    pending = ""
    for line in lines:
        unstuffed = line.removeprefix(" ")
        if line.endswith(" ") and not line.startswith(">"):
            pending += unstuffed
        else:
            yield pending + unstuffed
            pending = ""
    if pending:
        yield pending


def _text(part: MailMessage) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    return decode(payload, _charset(part)).text


def _charset(part: MailMessage) -> str | None:
    try:
        return part.get_content_charset()
    except _UNREADABLE:
        return None


def _file_name(part: MailMessage) -> str:
    try:
        name = part.get_filename() or ""
    except _UNREADABLE:
        return ""
    return _decoded(name)[:_MOST_NAME_CHARACTERS]


def _header(message: MailMessage, name: str) -> str:
    """First header of this name in a line, decoded. Returns '' without one."""
    for header, value in message.raw_items():
        if header.lower() == name.lower():
            return _decoded(str(value))
    return ""


def _decoded(value: str) -> str:
    # bytes outside of ASCII come as lone surrogates
    raw = value[:_MOST_HEADER_CHARACTERS].encode("utf-8", "surrogateescape")
    text = cleaned(decode(raw, None).text)
    if "=?" in text:
        with contextlib.suppress(*_UNREADABLE):
            text = str(make_header(decode_header(text)))
    return " ".join(cleaned(text).split())


def _name(sender: str) -> str:
    """Name of a sender, else the address."""
    try:
        name, address = email.utils.parseaddr(sender)
    except RecursionError:  # comments in comments
        name, address = "", sender
    return " ".join((name or address or sender).split())[:_MOST_NAME_CHARACTERS]


def _addresses(header: str) -> list[str]:
    """Addresses in a header, in lower case; names without an address are left out."""
    try:
        pairs = email.utils.getaddresses([header])
    except (*_UNREADABLE, RecursionError):  # comments may be nested
        return []
    return [address.lower() for _, address in pairs if "@" in address]


def _time(date: str) -> datetime | None:
    try:
        time = email.utils.parsedate_to_datetime(date)
        # a time zone of "-0000" is unknown; such times are in UTC
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    except _UNREADABLE:
        return None


def _ids(header: str) -> Sequence[str]:
    return re.findall(r"<([^<>\s]{1,300})>", header)

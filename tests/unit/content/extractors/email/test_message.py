"""Extraction of messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from content.extractors.email import extract
from runtime.errors import Damaged, LegacyFormat, LimitExceeded
from tests.support.renditions import DATA, assert_well_formed, assert_withstands_damage

_HEAD = b"From: Ana <ana@example.org>\r\nSubject: Plans\r\nDate: Mon, 2 Mar 2026 10:14:00 +0200\r\n"


def _lines(raw: bytes) -> tuple[str, ...]:
    rendition = extract(raw)
    assert_well_formed(rendition)
    return tuple(line for line in rendition.lines if line)


def _multipart(kind: str, *parts: bytes) -> bytes:
    body = b"".join(b"--x\r\n" + part + b"\r\n" for part in parts)
    head = _HEAD + f'Content-Type: multipart/{kind}; boundary="x"\r\n\r\n'.encode()
    return head + body + b"--x--\r\n"


_PLAIN = b"Content-Type: text/plain\r\n\r\nplain text"
_HTML = b"Content-Type: text/html\r\n\r\n<h1>Big</h1><p>text of <b>HTML</b></p>"


def test_headers_and_text_have_the_place_of_the_message() -> None:
    rendition = extract(_HEAD + b"To: Ben <ben@example.org>\r\n\r\nHello,\r\n\r\n> a quotation\r\n")
    assert rendition.lines == (
        *("# Plans", "", "From: Ana <ana@example.org>", "To: Ben <ben@example.org>"),
        *("Date: 2026-03-02 08:14", "", "Hello,", "", "> a quotation"),
    )
    (place,) = rendition.places
    assert place.fragment == "message"
    assert place.speakers == ("Ana",)
    assert place.time == datetime(2026, 3, 2, 8, 14, tzinfo=UTC)
    assert rendition.title == "Plans"


def test_headers_are_metadata() -> None:
    """Addresses are in lower case, so that a filter finds a person; absent headers are left out."""
    to = b"To: Ben <Ben@Example.org>, cleo@example.org\r\n\r\nHello"
    assert extract(_HEAD + to).metadata == {
        "from": "ana@example.org",
        "to": "ben@example.org, cleo@example.org",
        "subject": "Plans",
        "date": "2026-03-02",
    }
    assert extract(b"Subject: Plans\r\nFrom: nobody\r\n\r\nHello").metadata == {"subject": "Plans"}


def test_plain_text_is_preferred() -> None:
    assert _lines(_multipart("alternative", _PLAIN, _HTML))[-1] == "plain text"


def test_html_is_read_where_there_is_no_plain_text() -> None:
    empty = b"Content-Type: text/plain\r\n\r\n \r\n"
    rendition = extract(_multipart("alternative", empty, _HTML))
    assert rendition.lines[-1] == "text of HTML"
    assert [(section.level, section.name) for section in rendition.sections] == [
        (1, "Plans"),
        (2, "Big"),
    ]


def test_signatures_are_left_out() -> None:
    assert _lines(_HEAD + b"\r\nHello\r\n-- \r\nAna\r\n+49 123")[-1] == "Hello"


def test_flowed_text_is_joined() -> None:
    head = _HEAD + b"Content-Type: text/plain; format=flowed\r\n\r\n"
    assert _lines(head + b"one \r\ntwo\r\nthree")[-2:] == ("one two", "three")


def test_attachments_are_named() -> None:
    attachment = (
        b"Content-Type: application/pdf\r\n"
        b'Content-Disposition: attachment; filename="=?utf-8?q?Pl=C3=A4ne.pdf?="\r\n\r\n%PDF'
    )
    logo = b"Content-Type: image/png\r\nContent-ID: <logo>\r\n\r\nxx"
    rendition = extract(_multipart("mixed", _PLAIN, attachment, logo))
    assert rendition.lines[-1] == "Attachments: Pläne.pdf"
    assert rendition.warnings == ("attachments that were not extracted: Pläne.pdf",)


def test_messages_in_a_message_are_sections() -> None:
    inner = b"Content-Type: message/rfc822\r\n\r\nFrom: Ben\r\nSubject: Inner\r\n\r\ninner text"
    rendition = extract(_multipart("digest", inner, inner))
    assert [(section.level, section.name) for section in rendition.sections] == [
        (1, "Plans"),
        (2, "Inner"),
        (2, "Inner"),
    ]
    assert rendition.places[-1].speakers == ("Ben",)


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        ("text/plain; charset=iso-8859-2", "žluť".encode("iso8859-2"), "žluť"),
        ("text/plain; charset=utf-8", "žluť".encode(), "žluť"),
        ("text/plain; charset=no-such-charset", "žluť".encode(), "žluť"),
        ("text/plain", b"na\xefve", "naïve"),
    ],
)
def test_character_sets(head: str, body: bytes, text: str) -> None:
    raw = _HEAD + f"Content-Type: {head}\r\nContent-Transfer-Encoding: 8bit\r\n\r\n".encode() + body
    assert _lines(raw)[-1] == text


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        (b"=?utf-8?b?xb5sdcWl?=", "žluť"),
        ("žluť".encode(), "žluť"),
        (b"=?no-such-charset?q?a?=", "=?no-such-charset?q?a?="),
    ],
)
def test_subjects_are_decoded(header: bytes, subject: str) -> None:
    assert extract(b"From: Ana\r\nSubject: " + header + b"\r\n\r\ntext").title == subject


@pytest.mark.parametrize(
    "header",
    [
        b"From: " + b"((" * 100_000,
        b"Content-Type: text/plain; " + b'a*0*="x";' * 300_000,
        b"Content-Disposition: attachment; " + b'filename*0="x";' * 300_000,
    ],
)
def test_long_headers_are_cut(header: bytes) -> None:
    assert_well_formed(extract(b"Subject: Plans\r\n" + header + b"\r\n\r\ntext"))


def test_an_unreadable_date_is_left_out() -> None:
    rendition = extract(b"From: Ana\r\nDate: yesterday\r\n\r\ntext")
    assert rendition.places[0].time is None


@pytest.mark.parametrize("raw", [b"", b"no headers here", b"X-Other: 1\r\n\r\ntext"])
def test_other_bytes_are_damage(raw: bytes) -> None:
    with pytest.raises(Damaged):
        extract(raw)


def test_messages_of_outlook_are_refused() -> None:
    with pytest.raises(LegacyFormat) as refusal:
        extract(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))
    assert ".eml" in refusal.value.remedy


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="2,000 parts"):
        extract(_multipart("mixed", *[b"\r\nx"] * 2_001))


def test_deep_parts_are_read_or_refused() -> None:
    raw = _HEAD
    for depth in range(3_000):
        raw += f'Content-Type: multipart/mixed; boundary="x{depth}"\r\n\r\n--x{depth}\r\n'.encode()
    with pytest.raises(LimitExceeded, match="nested too deeply"):
        extract(raw)


def test_real_messages_are_extracted() -> None:
    paths = sorted((DATA / "email").glob("*.eml"))
    for path in paths:
        rendition = extract(path.read_bytes())
        assert_well_formed(rendition)
        assert rendition.title
    assert len(paths) == 7


def test_damaged_messages_are_extracted_or_refused() -> None:
    documents = [path.read_bytes() for path in sorted((DATA / "email").glob("*.eml"))]
    assert_withstands_damage(extract, documents, 100)

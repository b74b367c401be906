"""Extraction of conversations from any bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest

from content.extractors.conversation.extractor import extract
from content.rendition import Rendition
from runtime.errors import Damaged, Poison, UnsupportedContent
from tests.support.containers import zip_of
from tests.support.forking import ROOT

SLACK = ROOT / "tests/data/content/conversation/slack-testarchive.zip"
MESSAGES = json.dumps([{"role": "user", "content": "hello"}, {"role": "tool", "content": "x"}])
DAY = json.dumps([{"type": "message", "ts": "1.1", "text": "a", "user": "U1", "blocks": [{}]}])
CHAT = json.dumps([{"title": "t", "mapping": {"a": {"message": {"author": {"role": "user"}}}}}])
SUBTITLES = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Ana>hello\n\n00:02.000 --> 00:03.000\nB: x\n"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"Ana: hi\nBen: hello\n", UnsupportedContent),
        (b"[10:14] Ana: hi", Damaged),
        (b'{"a": 1}', UnsupportedContent),
        (b"[1, 2]", UnsupportedContent),
        (b"[" * 100_000, Damaged),
        (b'[{"role": "user", "content": "a"}', Damaged),
        (b"\xff\xfe\x00\xd8", UnsupportedContent),
        (b"PK\x03\x04", Damaged),
        (b"", UnsupportedContent),
    ],
)
def test_other_bytes_are_refused(raw: bytes, error: type[UnsupportedContent]) -> None:
    """The error says what the bytes are not, and what can be done."""
    with pytest.raises(error) as refusal:
        extract(raw)
    assert type(refusal.value) is error
    assert refusal.value.remedy


@pytest.mark.parametrize("raw", [b"[]", zip_of({"channels.json": "[]"})])
def test_an_empty_export(raw: bytes) -> None:
    """An export without messages has no lines."""
    assert extract(raw) == Rendition(())


def test_equal_bytes_give_equal_renditions() -> None:
    """Extraction depends on nothing but the bytes."""
    raw = SLACK.read_bytes()
    assert extract(raw) == extract(raw)
    assert_sound(extract(raw))


def damaged(raw: bytes, random: Random) -> Iterator[bytes]:
    """Truncations and flipped bytes; most hit the structure of small documents."""
    for _ in range(150):
        yield raw[: random.randrange(len(raw))]
        changed = bytearray(raw)
        for _ in range(random.randrange(1, 6)):
            changed[random.randrange(len(raw))] = random.choice(b'[]{}",:0-\\\n<\x00\xff')
        yield bytes(changed)


@pytest.mark.parametrize("text", [MESSAGES, DAY, CHAT, SUBTITLES])
def test_damaged_texts(text: str) -> None:
    """Each damaged text is rendered or refused."""
    outcomes = [rendered(raw) for raw in damaged(text.encode(), Random(13))]
    assert {True, False} <= set(outcomes)


def test_damaged_exports() -> None:
    """Each damaged export is rendered or refused, also if the archive itself is whole."""
    random = Random(13)
    raw = zip_of({"users.json": "[]", "dev/2026-03-02.json": DAY})
    outcomes = [rendered(variant) for variant in damaged(raw, random)]
    outcomes += [
        rendered(zip_of({"channels.json": variant, "dev/2026-03-02.json": variant}))
        for variant in damaged(DAY.encode(), random)
    ]
    assert {True, False} <= set(outcomes)


def rendered(raw: bytes) -> bool:
    """Extract, check the rendition, and return whether there is one."""
    try:
        rendition = extract(raw)
    except Poison:
        return False
    assert_sound(rendition)
    return True


@pytest.mark.parametrize("value", [None, True, -1, 1e999, "\ud800\0\r\n", [], {}, [[]], [{}]])
@pytest.mark.parametrize(
    "form",
    [
        '[{"type": "message", "ts": "1.1", "text": "a", "KEY": VALUE}]',
        '[{"role": "user", "content": "a", "KEY": VALUE}]',
        '[{"title": "t", "chat_messages": [{"sender": "human", "text": "a", "KEY": VALUE}]}]',
        '[{"mapping": {"a": {"message": {"author": {"role": "user"}, "KEY": VALUE}}}}]',
        '{"messages": [{"author": {"name": "A"}, "content": "a", "timestamp": "", "KEY": VALUE}]}',
    ],
)
def test_values_of_any_type(form: str, value: object) -> None:
    """A member of any type in any place is read or skipped."""
    names = "ts text user subtype thread_ts attachments blocks files user_profile bot_profile role"
    names += " content tool_calls name id timestamp sender created_at uuid author type mentions"
    names += " embeds reference create_time metadata title mapping messages"
    text = json.dumps(value)
    for name in names.split():
        rendered(form.replace("KEY", name).replace("VALUE", text).encode())


def assert_sound(rendition: Rendition) -> None:
    """Check the contract of renditions."""
    assert len(rendition.place_of) == len(rendition.lines)
    assert all(0 <= place < len(rendition.places) for place in rendition.place_of)
    text = "".join(rendition.lines)
    assert not {"\r", "\n", "\0"} & set(text)
    text.encode()
    rows = [section.row for section in rendition.sections]
    assert rows == sorted(rows)
    assert all(section.name and rendition.lines[section.row] for section in rendition.sections)
    assert all(len(warning) <= 300 for warning in rendition.warnings)

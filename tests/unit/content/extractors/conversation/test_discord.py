"""Exports of Discord."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from content.extractors.conversation.extractor import extract


def message(identifier: str, content: str, day: int = 2, **fields: object) -> Mapping[str, object]:
    return {
        "id": identifier,
        "type": "Default",
        "timestamp": f"2026-03-0{day}T10:14:00+00:00",
        "content": content,
        "author": {"id": "7", "name": "ana", "nickname": "Ana"},
        **fields,
    }


def test_a_channel_by_days() -> None:
    """Days are sections, replies name whom they answer, and joins and pins are left out."""
    export = {
        "guild": {"name": "Headrace"},
        "channel": {"type": "GuildTextChat", "name": "help"},
        "messages": [
            message("3", "next day", 3),
            message("1", "hello <@7> <:wave:123>", mentions=[{"id": "7", "nickname": "Ana"}]),
            message("2", "Joined the server.", type="GuildMemberJoin"),
            message("4", "two", author={"name": "ben"}),
            message("5", "yes", type="Reply", reference={"messageId": "1"}),
            message("6", "", attachments=[{"fileName": "a.png"}], embeds=[{"title": "Docs"}]),
            message("7", ""),
            {"id": "8", "type": []},
        ],
    }
    rendition = extract(json.dumps(export).encode())
    assert rendition.title == "Headrace > help"
    assert [line for line in rendition.lines if line] == [
        "# help",
        "## 2026-03-02",
        "**Ana** (2026-03-02 10:14): hello @Ana :wave:",
        "**ben** (2026-03-02 10:14): two",
        "**Ana** (2026-03-02 10:14, to Ana): yes",
        "**Ana** (2026-03-02 10:14): Docs",
        "[file: a.png]",
        "## 2026-03-03",
        "**Ana** (2026-03-03 10:14): next day",
    ]


def test_a_thread_is_one_section() -> None:
    """A thread that lasts for days stays whole, below its channel."""
    export = {
        "channel": {"type": "GuildPublicThread", "name": "It stops", "category": "help"},
        "messages": [message("1", "a"), message("2", "b", 3)],
    }
    rendition = extract(json.dumps(export).encode())
    assert [(part.name, part.level, part.alone) for part in rendition.sections] == [
        ("help", 1, False),
        ("It stops", 2, True),
        ("Ana", 3, False),
        ("Ana", 3, False),
    ]


def test_messages_of_the_interface() -> None:
    """A plain list of messages has lines of the file."""
    messages = [message("1", "a", type=0, author={"username": "a", "global_name": "Ana"})]
    rendition = extract(json.dumps(messages).encode())
    assert rendition.lines[-1] == "**Ana** (2026-03-02 10:14): a"
    assert rendition.places[0].lines == (1, 1)


@pytest.mark.parametrize(
    ("guild", "channel", "permalink"),
    [
        ("11", "22", "https://discord.com/channels/11/22/1"),
        ("0", "22", "https://discord.com/channels/@me/22/1"),
        ("11", "../x", None),
    ],
)
def test_messages_have_addresses_where_the_ids_are_known(
    guild: str, channel: str, permalink: str | None
) -> None:
    """The ids of server, channel and message make an address; direct messages have no server."""
    export = {
        "guild": {"id": guild, "name": "Headrace"},
        "channel": {"id": channel, "type": "GuildTextChat", "name": "help"},
        "messages": [message("1", "hello")],
    }
    (place,) = extract(json.dumps(export).encode()).places
    assert place.permalink == permalink

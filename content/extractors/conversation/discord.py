"""Reader of Discord: exports of a channel, and lists of messages as its interface returns them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from content.extractors.conversation.turns import (
    Channel,
    Conversations,
    Thread,
    Turn,
    day_name,
    in_order,
)
from content.extractors.conversation.values import (
    Element,
    address,
    instant,
    items,
    members,
    string,
)

__all__ = ["is_discord_message", "read_channel", "read_messages"]

_WRITTEN_TYPES = (None, "Default", "Reply", "ThreadStarterMessage", 0, 19, 20, 21, 23)
"""Types of messages that people write, by the names of exporters and the numbers of the interface;
the others are joins, pins and calls.
"""
_NO_GUILD = "0"
"""Id that exports give to the guild of direct messages."""
_MESSAGES = "https://discord.com/channels/"
_MENTION = re.compile(r"<@[!&]?(\d{1,25})>")
_EMOJI = re.compile(r"<a?(:\w{1,40}:)\d{1,25}>")


def is_discord_message(value: object) -> bool:
    """Return whether this is a message of Discord."""
    return members(value).keys() >= {"author", "content", "timestamp"}


def read_channel(export: Mapping[str, object]) -> Conversations:
    """Read an export of one channel by days, or of one thread as a whole."""
    channel = members(export.get("channel"))
    name = string(channel.get("name"))
    guild = string(members(export.get("guild")).get("name"))
    title = " > ".join(filter(None, [guild, name])) or None
    turns = _turns([(value, None) for value in items(export.get("messages"))], _base(export))
    if "Thread" in string(channel.get("type")):
        threads: Sequence[Thread] = [Thread(name, turns)] if turns else ()
        return Conversations([Channel(string(channel.get("category")), threads)], title)
    return Conversations([Channel(name, _days(turns))], title)


def read_messages(messages: Sequence[Element]) -> Conversations:
    """Read a list of messages by days."""
    turns = _turns([(element.value, element.lines) for element in messages])
    return Conversations([Channel("", _days(turns))])


def _turns(
    messages: Sequence[tuple[object, tuple[int, int] | None]], base: str = ""
) -> Sequence[Turn]:
    """Turns in order; ``base`` is the address of their channel, '' if it is unknown."""
    turns = []
    for value, lines in messages:
        message = members(value)
        text = _text(message)
        is_written = message.get("type") in _WRITTEN_TYPES
        if not (is_discord_message(message) and is_written and text):
            continue
        author = members(message.get("author"))
        reference = members(message.get("reference")) or members(message.get("message_reference"))
        turns.append(
            Turn(
                id=string(message.get("id")),
                speaker=string(
                    author.get("nickname"),
                    author.get("global_name"),
                    author.get("name"),
                    author.get("username"),
                )
                or "unknown",
                time=instant(message.get("timestamp")),
                text=text,
                permalink=_permalink(message, base),
                reply_to=string(reference.get("messageId"), reference.get("message_id")) or None,
                lines=lines,
            )
        )
    return in_order(turns)


def _base(export: Mapping[str, object]) -> str:
    """Address of a channel, which the address of each message begins with, '' without its ids."""
    guild = string(members(export.get("guild")).get("id"))
    channel = string(members(export.get("channel")).get("id"))
    if not (guild.isdecimal() and channel.isdecimal()):
        return ""
    return f"{_MESSAGES}{'@me' if guild == _NO_GUILD else guild}/{channel}/"


def _permalink(message: Mapping[str, object], base: str) -> str | None:
    own = address(message.get("permalink"), message.get("url"))
    identifier = string(message.get("id"))
    return own or (f"{base}{identifier}" if base and identifier.isdecimal() else None)


def _days(turns: Sequence[Turn]) -> Sequence[Thread]:
    days: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        days[day_name(turn)].append(turn)
    return [Thread(name, day) for name, day in days.items()]


def _text(message: Mapping[str, object]) -> str:
    """Text of a message and of its embeds, and the names of its attachments."""
    names = {
        string(person.get("id")): string(
            person.get("nickname"), person.get("name"), person.get("username")
        )
        for person in map(members, items(message.get("mentions")))
    }
    content = _MENTION.sub(
        lambda match: f"@{names.get(match[1]) or match[1]}", string(message.get("content"))
    )
    parts = [_EMOJI.sub(r"\1", content)]
    for embed in map(members, items(message.get("embeds"))):
        parts += [string(embed.get("title")), string(embed.get("description"))]
    for attachment in map(members, items(message.get("attachments"))):
        name = string(attachment.get("fileName"), attachment.get("filename"))
        parts.append(f"[file: {name}]" if name else "")
    return "\n".join(dict.fromkeys(filter(None, parts)))

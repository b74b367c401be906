"""Reader of Slack: exports of a workspace, and files of one day."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from content.extractors.archives import Members
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
    elements,
    instant,
    items,
    members,
    string,
)
from runtime.errors import Damaged

__all__ = ["is_slack_message", "read_day", "read_export", "to_markdown"]

_WORKSPACE = re.compile(r"https://[a-z0-9][a-z0-9.-]{0,100}\.slack\.com/(?=files/)")
_CHANNEL_ID = re.compile(r"[A-Z0-9]{2,20}")
_TIMESTAMP = re.compile(r"\d{1,12}\.\d{1,9}")
_DAY = re.compile(r"(?:.*/)?([^/]+)/\d{4}-\d\d-\d\d\.json")
_LISTS = ("channels.json", "groups.json", "mpims.json", "dms.json")
_NOTICES = frozenset(
    {
        *("channel_join", "channel_leave", "channel_archive", "channel_unarchive"),
        *("channel_convert_to_private", "channel_convert_to_public", "channel_posting_permissions"),
        *("group_join", "group_leave", "group_archive", "group_unarchive"),
        *("bot_add", "bot_remove", "bot_enable", "bot_disable"),
        *("pinned_item", "unpinned_item", "tombstone", "message_deleted"),
    }
)
"""Subtypes of messages without content."""
_DEEPEST_BLOCK = 8
_LINES_OF_BLOCKS = ("rich_text_section", "rich_text_preformatted", "rich_text_quote")
"""Blocks whose elements are parts of one line or paragraph."""


def is_slack_message(value: object) -> bool:
    """Return whether this is a message as Slack exports it."""
    message = members(value)
    return message.get("type") == "message" and "ts" in message


def read_export(archive: Members) -> Conversations:
    """Read an export: a channel per folder, threads and days in the order of their first turns.

    Days count in UTC. Files of a day that can't be read are left out, with a warning.
    """
    by_name = {name.rpartition("/")[2]: name for name in archive.names if name.count("/") <= 1}
    users = _users(_listed(archive, by_name.get("users.json")))
    listed = [channel for name in _LISTS for channel in _listed(archive, by_name.get(name))]
    titles = _channel_titles(listed, users)
    identifiers = _channel_identifiers(listed)
    messages: defaultdict[str, list[object]] = defaultdict(list)
    damaged = 0
    for name in sorted(archive.names):
        day = _DAY.fullmatch(name)
        if day is None:
            continue
        try:
            messages[day[1]].extend(element.value for element in _read(archive, name))
        except Damaged:
            damaged += 1
    workspace = _workspace(value for channel in messages.values() for value in channel)
    channels = []
    for folder in sorted(messages):
        identifier = identifiers.get(folder)
        base = f"{workspace}archives/{identifier}/p" if workspace and identifier else ""
        threads = _threads([(value, None) for value in messages[folder]], users, base)
        channels.append(Channel(titles.get(folder, folder), threads))
    warning = f"{damaged:,} files of a day can't be read" if damaged else ""
    return Conversations(
        [channel for channel in channels if channel.threads],
        warnings=(warning,) if warning else (),
    )


def read_day(messages: Sequence[Element]) -> Conversations:
    """Read the messages of one channel, without the names of users who do not write."""
    users = _users(_profile(members(element.value)) for element in messages)
    threads = _threads([(element.value, element.lines) for element in messages], users)
    return Conversations([Channel("", threads)])


def _read(archive: Members, name: str) -> Sequence[Element]:
    return elements(archive.read(name).decode("utf-8-sig", "replace"))


def _listed(archive: Members, name: str | None) -> Sequence[object]:
    """Elements of a list in the export, none if it is missing or damaged."""
    try:
        return [element.value for element in _read(archive, name)] if name else ()
    except Damaged:
        return ()


def _users(values: Iterable[object]) -> Mapping[str, str]:
    """Names by id, as Slack shows them: the display name, else the full name."""
    names: dict[str, str] = {}
    for value in values:
        user = members(value)
        profile = members(user.get("profile"))
        name = string(
            profile.get("display_name"),
            user.get("display_name"),
            profile.get("real_name"),
            user.get("real_name"),
            user.get("name"),
        )
        if name:
            names[string(user.get("id"))] = name
    return names


def _profile(message: Mapping[str, object]) -> Mapping[str, object]:
    return {**members(message.get("user_profile")), "id": message.get("user")}


def _channel_titles(channels: Iterable[object], users: Mapping[str, str]) -> Mapping[str, str]:
    """Titles of channels by folder; a direct message is named after its members."""
    titles: dict[str, str] = {}
    for value in channels:
        channel = members(value)
        people = [users.get(string(user)) or string(user) for user in items(channel.get("members"))]
        name, identifier = string(channel.get("name")), string(channel.get("id"))
        if name and not name.startswith("mpdm-"):
            titles[name] = name
        else:
            titles[name or identifier] = ", ".join(filter(None, people)) or name or identifier
    return titles


def _channel_identifiers(channels: Iterable[object]) -> Mapping[str, str]:
    """Ids of channels by folder, which is the id of a channel without a name."""
    identifiers: dict[str, str] = {}
    for channel in map(members, channels):
        identifier = string(channel.get("id"))
        if _CHANNEL_ID.fullmatch(identifier):
            identifiers[string(channel.get("name")) or identifier] = identifier
    return identifiers


def _workspace(messages: Iterable[object]) -> str:
    """Address of the workspace, which an export has in the links to its files, else ''."""
    for message in map(members, messages):
        for file in map(members, items(message.get("files"))):
            match = _WORKSPACE.match(string(file.get("permalink")))
            if match is not None:
                return match[0]
    return ""


def _threads(
    messages: Sequence[tuple[object, tuple[int, int] | None]],
    users: Mapping[str, str],
    base: str = "",
) -> Sequence[Thread]:
    """Group messages by thread; those outside of threads by day.

    ``base`` is what the addresses of the channel's messages begin with, '' if it is unknown.
    """
    turns: list[Turn] = []
    parents: dict[str, str] = {}
    for value, lines in messages:
        message = members(value)
        text = _text(message, users)
        if not is_slack_message(message) or string(message.get("subtype")) in _NOTICES or not text:
            continue
        turn = Turn(
            id=string(message.get("ts")),
            speaker=_speaker(message, users),
            time=instant(message.get("ts")),
            text=text,
            permalink=address(message.get("permalink")) or _permalink(message, base),
            lines=lines,
        )
        turns.append(turn)
        parents[turn.id] = string(message.get("thread_ts")) or turn.id
    answered = {parent for identifier, parent in parents.items() if parent != identifier}
    groups: defaultdict[str, list[Turn]] = defaultdict(list)
    for turn in in_order(turns):
        parent = parents[turn.id]
        groups[_thread_name(parent) if parent in answered else day_name(turn)].append(turn)
    return [Thread(name, group) for name, group in groups.items()]


def _permalink(message: Mapping[str, object], base: str) -> str | None:
    """Address of a message, which shows the thread that it is in."""
    timestamp, parent = string(message.get("ts")), string(message.get("thread_ts"))
    if not base or not _TIMESTAMP.fullmatch(timestamp):
        return None
    link = base + timestamp.replace(".", "")
    return f"{link}?thread_ts={parent}" if _TIMESTAMP.fullmatch(parent) else link


def _thread_name(timestamp: str) -> str:
    """Name of a thread, which its exact time keeps apart from others of the same minute."""
    start = instant(timestamp)
    return f"Thread {start:%Y-%m-%d %H:%M:%S}" if start else f"Thread {timestamp}"


def _speaker(message: Mapping[str, object], users: Mapping[str, str]) -> str:
    user = string(message.get("user"))
    bot = members(message.get("bot_profile"))
    return (
        users.get(user)
        or string(message.get("username"), bot.get("name"))
        or user
        or ("bot" if message.get("bot_id") else "unknown")
    )


def _text(message: Mapping[str, object], users: Mapping[str, str]) -> str:
    """Text of a message, of what is attached to it, and the names of its files."""
    parts = [string(message.get("text"))]
    if not parts[0]:
        parts += _block_texts(message.get("blocks"))
    for value in items(message.get("attachments")):
        parts += _attachment(members(value))
    text = "\n".join(to_markdown(part, users) for part in dict.fromkeys(parts) if part)
    names = [
        string(members(file).get("title"), members(file).get("name"))
        for file in items(message.get("files"))
    ]
    files = [f"[file: {name}]" for name in names if name]
    return "\n".join(filter(None, [text, *files]))


def _attachment(attachment: Mapping[str, object]) -> Sequence[str]:
    """Texts of a preview of a link, or of what a bot reports."""
    parts = [string(attachment.get(name)) for name in ("pretext", "title", "text")]
    for value in items(attachment.get("fields")):
        field = members(value)
        title, text = string(field.get("title")), string(field.get("value"))
        parts.append(f"{title}: {text}" if title and text else title or text)
    if not any(parts):
        parts = _block_texts(attachment.get("blocks"))
    return parts if any(parts) else [string(attachment.get("fallback"))]


def _block_texts(value: object, depth: int = 0) -> list[str]:
    """Texts of blocks (headers, sections, rich text), in order."""
    if depth > _DEEPEST_BLOCK or not isinstance(value, dict | list):
        return []
    if isinstance(value, list):
        return [text for item in value for text in _block_texts(item, depth + 1)]
    block = members(value)
    own = block.get("text")
    if isinstance(own, str):
        return [own] if own.strip() else []
    inner = [
        text
        for name in ("text", "fields", "elements")
        for text in _block_texts(block.get(name), depth + 1)
    ]
    is_line = block.get("type") in _LINES_OF_BLOCKS
    return ["".join(inner)] if is_line and inner else inner


_REFERENCE = re.compile(r"<([^<>\n]{1,4000})>")
_FENCE = re.compile(r"[ \t]*```[ \t]*")


def to_markdown(text: str, names: Mapping[str, str]) -> str:
    """Convert a message; ``names`` are those of users by id.

    Mentions become ``@name`` and ``#channel``, links become those of Markdown, and each fence gets
    a line of its own.
    """
    parts = _FENCE.split(text)
    if len(parts) % 2 == 0:  # an odd fence is not a fence
        return _inline(text, names)
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = f"```\n{_inline(part, names).strip(chr(10))}\n```"
        else:
            parts[number] = _inline(part, names).strip("\n")
    return "\n".join(part for part in parts if part)


def _inline(text: str, names: Mapping[str, str]) -> str:
    return html.unescape(_REFERENCE.sub(lambda match: _reference(match[1], names), text))


def _reference(reference: str, names: Mapping[str, str]) -> str:
    target, _, label = reference.partition("|")
    if target.startswith("@"):
        return f"@{names.get(target[1:]) or label or target[1:]}"
    if target.startswith("#"):
        return f"#{label or target[1:]}"
    if target.startswith("!"):
        shown = label or target[1:].partition("^")[0]
        return shown if target.startswith("!date") else f"@{shown.removeprefix('@')}"
    if not label or label in target:
        return target.removeprefix("mailto:")
    return f"[{label}]({target})"

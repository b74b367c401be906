"""Extractor of conversations: finds the format of an export, and renders its turns."""

from __future__ import annotations

from collections.abc import Sequence

from content.containers import ZIP
from content.detection import decode
from content.extractors.archives import Members, open_members
from content.extractors.conversation.assistants import (
    is_chat,
    is_role_message,
    read_chats,
    read_role_messages,
)
from content.extractors.conversation.discord import (
    is_discord_message,
    read_channel,
    read_messages,
)
from content.extractors.conversation.markdown import render
from content.extractors.conversation.slack import is_slack_message, read_day, read_export
from content.extractors.conversation.subtitles import is_subtitles, read_subtitles
from content.extractors.conversation.turns import Conversations
from content.extractors.conversation.values import Element, elements, items, members
from content.rendition import Rendition
from runtime.errors import UnsupportedContent

__all__ = ["extract"]

_CHATS = "conversations.json"


def extract(raw: bytes) -> Rendition:
    """Render an export of a chat, a list of messages, or subtitles.

    Raises:
        UnsupportedContent: the bytes are text or JSON of another form. Text in which a turn begins
            with ``Name:`` needs no extraction.
        Damaged: the JSON or the archive can't be read.
        LimitExceeded: the archive has too many members, or the text has more than 8 MiB.
    """
    if raw.startswith(ZIP):
        return render(_read_archive(open_members(raw)))
    text = decode(raw).replace("\r\n", "\n").replace("\r", "\n")
    if is_subtitles(text):
        return render(read_subtitles(text))
    if not text.lstrip().startswith(("{", "[")):
        raise _unknown_form("text")
    return render(_read_json(elements(text)))


def _read_archive(archive: Members) -> Conversations:
    chats = [name for name in archive.names if name.rpartition("/")[2] == _CHATS]
    if chats and min(name.count("/") for name in chats) <= 1:
        name = min(chats, key=lambda path: (path.count("/"), path))
        return _read_json(elements(archive.read(name).decode("utf-8-sig", "replace")))
    return read_export(archive)


def _read_json(values: Sequence[Element]) -> Conversations:
    """Read JSON by the form of the first element that has one."""
    for element in values:
        export = members(element.value)
        messages = items(export.get("messages"))
        if is_chat(export):
            return read_chats(values)
        if any(map(is_slack_message, messages)):
            return read_day([Element(message, element.lines) for message in messages])
        if any(map(is_discord_message, messages)):
            return read_channel(export)
        if is_slack_message(export):
            return read_day(values)
        if is_discord_message(export):
            return read_messages(values)
        if is_role_message(export):
            return read_role_messages(values)
    if not values:
        return Conversations(())
    raise _unknown_form("JSON")


def _unknown_form(form: str) -> UnsupportedContent:
    return UnsupportedContent(
        f"{form} that is not an export of a conversation in a known form",
        "publish it as kind text, or as a JSON list of messages with role and content",
    )

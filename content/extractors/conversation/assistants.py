"""Readers of chats with assistants: exports of ChatGPT and Claude, and lists of messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from content.extractors.conversation.turns import Channel, Conversations, Thread, Turn
from content.extractors.conversation.values import (
    Element,
    address,
    instant,
    items,
    members,
    string,
)

__all__ = ["is_chat", "is_role_message", "read_chats", "read_role_messages"]

_HIDDEN_CONTENT = frozenset(
    {"thoughts", "reasoning_recap", "model_editable_context", "user_editable_context"}
)
_MOST_MESSAGES = 100_000
_NAMES = {"human": "user"}


def is_role_message(value: object) -> bool:
    """Return whether this is a message with a role, as the interfaces of models take them."""
    message = members(value)
    return isinstance(message.get("role"), str) and (
        "content" in message or "tool_calls" in message
    )


def is_chat(value: object) -> bool:
    """Return whether this is a whole chat: of ChatGPT, of Claude, or with a list of messages."""
    chat = members(value)
    if isinstance(chat.get("mapping"), dict) or isinstance(chat.get("chat_messages"), list):
        return True
    return any(map(is_role_message, items(chat.get("messages"))))


def read_chats(chats: Sequence[Element]) -> Conversations:
    """Read chats; each becomes a thread of its own, named by its title.

    Branches that a user left by editing a message of ChatGPT are left out, with a warning.
    """
    threads: list[Thread] = []
    abandoned = 0
    for number, element in enumerate(chats, 1):
        chat = members(element.value)
        nodes = members(chat.get("mapping"))
        if nodes:
            turns, left_out = _chatgpt_turns(chat, nodes)
            abandoned += left_out
        elif "chat_messages" in chat:
            turns = _claude_turns(items(chat.get("chat_messages")))
        else:
            turns = _role_turns((value, element.lines) for value in items(chat.get("messages")))
        if turns:
            title = string(chat.get("title"), chat.get("name"))
            threads.append(Thread(title or ("" if len(chats) == 1 else f"Chat {number}"), turns))
    warning = f"{abandoned:,} messages of abandoned branches are left out" if abandoned else ""
    only_title = threads[0].name or None if len(threads) == 1 else None
    return Conversations([Channel("", threads)], only_title, (warning,) if warning else ())


def read_role_messages(messages: Sequence[Element]) -> Conversations:
    """Read a list of messages as one conversation."""
    turns = _role_turns((element.value, element.lines) for element in messages)
    return Conversations([Channel("", [Thread("", turns)] if turns else ())])


def _chatgpt_turns(
    chat: Mapping[str, object], nodes: Mapping[str, object]
) -> tuple[Sequence[Turn], int]:
    """Turns on the way from the root to the current message, and the count of the other ones."""
    path: list[str] = []
    identifier = string(chat.get("current_node"))
    if identifier not in nodes:
        identifier = _last_node(nodes)
    visited: set[str] = set()
    while identifier in nodes and identifier not in visited and len(path) < _MOST_MESSAGES:
        visited.add(identifier)
        path.append(identifier)
        identifier = string(members(nodes[identifier]).get("parent"))
    turns = [turn for name in reversed(path) if (turn := _chatgpt_turn(name, nodes[name]))]
    others = sum(_chatgpt_turn(name, node) is not None for name, node in nodes.items())
    return turns, others - len(turns)


def _last_node(nodes: Mapping[str, object]) -> str:
    """Name of the last message without an answer, '' if there is none."""
    leaves = [name for name, node in nodes.items() if not items(members(node).get("children"))]
    return leaves[-1] if leaves else ""


def _chatgpt_turn(identifier: str, node: object) -> Turn | None:
    message = members(members(node).get("message"))
    content = members(message.get("content"))
    author = members(message.get("author"))
    role = string(author.get("role"))
    metadata = members(message.get("metadata"))
    hidden = metadata.get("is_visually_hidden_from_conversation") or role in ("", "system")
    if hidden or string(content.get("content_type")) in _HIDDEN_CONTENT:
        return None
    text = _joined(items(content.get("parts"))) or string(
        content.get("text"), content.get("result")
    )
    if content.get("content_type") in ("code", "execution_output") and text:
        text = f"```\n{text}\n```"
    if not text:
        return None
    speaker = string(author.get("name")) or role
    return Turn(identifier, speaker, instant(message.get("create_time")), text)


def _claude_turns(messages: Iterable[object]) -> Sequence[Turn]:
    turns = []
    for message in map(members, messages):
        parts = [_joined(items(message.get("content"))) or string(message.get("text"))]
        for attachment in map(members, items(message.get("attachments"))):
            name = string(attachment.get("file_name"))
            parts += [
                f"[file: {name}]" if name else "",
                string(attachment.get("extracted_content")),
            ]
        parts += [
            f"[file: {name}]"
            for file in map(members, items(message.get("files")))
            if (name := string(file.get("file_name")))
        ]
        text = "\n".join(filter(None, parts))
        if text:
            role = string(message.get("sender"))
            turns.append(
                Turn(
                    string(message.get("uuid")),
                    _NAMES.get(role, role),
                    instant(message.get("created_at")),
                    text,
                )
            )
    return turns


def _role_turns(
    messages: Iterable[tuple[object, tuple[int, int] | None]],
) -> Sequence[Turn]:
    turns = []
    for value, lines in messages:
        message = members(value)
        content = message.get("content")
        parts = [string(content) or _joined(items(content))]
        for call in map(members, items(message.get("tool_calls"))):
            function = members(call.get("function"))
            parts.append(f"`{string(function.get('name'))}({string(function.get('arguments'))})`")
        text = "\n".join(filter(None, parts))
        if text and is_role_message(message):
            turns.append(
                Turn(
                    string(message.get("id")),
                    string(message.get("name"), message.get("role")),
                    instant(message.get("timestamp") or message.get("created_at")),
                    text,
                    permalink=address(message.get("permalink"), message.get("html_url")),
                    lines=lines,
                )
            )
    return turns


def _joined(parts: Sequence[object]) -> str:
    """Texts of the parts of a message; images, sounds and calls of tools are left out."""
    texts = (part if isinstance(part, str) else members(part).get("text") for part in parts)
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())

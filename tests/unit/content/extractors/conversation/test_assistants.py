"""Chats with assistants."""

from __future__ import annotations

import json
from collections.abc import Mapping

from content.extractors.conversation.extractor import extract
from content.rendition import Rendition
from tests.support.containers import zip_of


def node(
    parent: str | None, role: str, *parts: object, kind: str = "text", **metadata: object
) -> Mapping[str, object]:
    content = {"content_type": kind, "parts": list(parts)}
    author = {"role": role}
    message = {"author": author, "content": content, "create_time": 1772446440.5}
    return {"parent": parent, "children": [], "message": {**message, "metadata": metadata}}


CHATGPT = {
    "title": "Sorting",
    "create_time": 1772446440.5,
    "current_node": "e",
    "mapping": {
        "r": {"parent": None, "message": None, "children": ["a"]},
        "a": node("r", "system", "hidden"),
        "b": node("a", "user", "How do I sort?", {"content_type": "image_asset_pointer"}),
        "x": node("b", "assistant", "an abandoned answer"),
        "c": node("b", "user", "profile", is_visually_hidden_from_conversation=True),
        "d": node("c", "assistant", "thinking", kind="thoughts"),
        "e": node("d", "assistant", "# Sort\n\n```py\nsorted(x)\n```"),
    },
}


def rendered(value: object) -> Rendition:
    return extract(json.dumps(value).encode())


def test_the_current_branch_of_chatgpt() -> None:
    """Turns stand on the way to the current message, and a warning counts the other ones."""
    rendition = rendered([CHATGPT])
    assert rendition.title == "Sorting"
    assert rendition.lines == (
        "# Sorting",
        "",
        "**user** (2026-03-02 10:14): How do I sort?",
        "",
        "**assistant** (2026-03-02 10:14):",
        "# Sort",
        "",
        "```py",
        "sorted(x)",
        "```",
    )
    assert rendition.warnings == ("1 messages of abandoned branches are left out",)
    assert rendered(CHATGPT).lines == rendition.lines


def test_an_archive_of_chatgpt() -> None:
    """The export as it is downloaded has each chat as a section of its own."""
    untitled = {**CHATGPT, "title": None, "current_node": "gone"}
    raw = zip_of({"chat.html": "", "conversations.json": json.dumps([CHATGPT, untitled])})
    rendition = extract(raw)
    assert rendition.title is None
    alone = [(part.name, part.alone) for part in rendition.sections if part.level == 1]
    assert alone == [("Sorting", True), ("Chat 2", True)]


def test_output_of_code() -> None:
    """A program's output is a fence, and the name of the tool is the speaker."""
    content = {"content_type": "execution_output", "text": "42"}
    message = {"author": {"role": "tool", "name": "python"}, "content": content}
    rendition = rendered([{"mapping": {"a": {"message": message}}, "current_node": "a"}])
    assert rendition.lines == ("**python**:", "```", "42", "```")


def test_a_cycle_of_messages_ends() -> None:
    """A message that is its own ancestor is read once."""
    mapping = {"a": node("b", "user", "one"), "b": node("a", "assistant", "two")}
    rendition = rendered([{"title": "t", "mapping": mapping, "current_node": "a"}])
    assert len(rendition.places) == 2


def test_claude() -> None:
    """Blocks of text, pasted files and the names of others are text of the turn."""
    chat = {
        "uuid": "u",
        "name": "Plans",
        "chat_messages": [
            {
                "uuid": "1",
                "sender": "human",
                "text": "shown if there are no blocks",
                "content": [{"type": "text", "text": "Read this"}, {"type": "tool_use"}],
                "created_at": "2026-03-02T10:14:00.123Z",
                "attachments": [{"file_name": "a.txt", "extracted_content": "pasted"}],
                "files": [{"file_name": "b.png"}],
            },
            {"sender": "assistant", "text": "Done", "content": []},
            {"sender": "human", "text": ""},
            "nonsense",
        ],
    }
    rendition = rendered([chat, {**chat, "name": ""}])
    assert [line for line in rendition.lines if line][:6] == [
        "# Plans",
        "**user** (2026-03-02 10:14): Read this",
        "[file: a.txt]",
        "pasted",
        "[file: b.png]",
        "**assistant**: Done",
    ]
    assert [part.name for part in rendition.sections if part.alone] == ["Plans", "Chat 2"]


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "name": "ana", "content": [{"type": "text", "text": "Weather?"}, {}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "weather", "arguments": '{"at": "here"}'}}],
    },
    {"role": "tool", "content": ""},
    {"role": "assistant", "content": "Rain.", "timestamp": "2026-03-02T10:14:00Z"},
]


def test_a_list_of_messages() -> None:
    """Roles or names are the speakers, and calls of tools are shown."""
    rendition = rendered(MESSAGES)
    assert [line for line in rendition.lines if line] == [
        "**system**: Be brief.",
        "**ana**: Weather?",
        '**assistant**: `weather({"at": "here"})`',
        "**assistant** (2026-03-02 10:14): Rain.",
    ]
    assert not any(part.alone for part in rendition.sections)
    assert rendered({"model": "m", "messages": MESSAGES}).lines == rendition.lines


def test_messages_in_lines() -> None:
    """A message a line is one conversation; a list of messages a line is a conversation each."""
    one = extract("\n".join(map(json.dumps, MESSAGES)).encode())
    assert one.lines == rendered(MESSAGES).lines
    assert [place.lines for place in one.places] == [(1, 1), (2, 2), (3, 3), (5, 5)]
    many = extract("\n".join(json.dumps({"messages": MESSAGES}) for _ in range(3)).encode())
    names = [part.name for part in many.sections if part.alone]
    assert names == ["Chat 1", "Chat 2", "Chat 3"]
    assert many.places[4].lines == (2, 2)

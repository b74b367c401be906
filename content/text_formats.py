"""Formats that are written as text, recognized by their first characters."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["json_outline", "text_format"]

_HTML = re.compile(
    r"\ufeff?(?>\s*(?:<\?xml[^>]*>|<!--.*?-->))*+\s*<(?:!doctype\s+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
_HTML_CHARACTERS = 1_024
_WEBVTT = re.compile(r"\ufeff?WEBVTT(?:[ \t\n\r]|$)")
_SUBRIP = re.compile(r"\ufeff?\s*\d+[ \t]*\r?\n\d+:\d\d:\d\d[,.]\d{1,3}[ \t]*-->[ \t]*\d+:")
_MAIL_HEADER = re.compile(r"\ufeff?\s*(?:From |[!-9;-~]+:)")
_MAIL_STARTS = {".eml": _MAIL_HEADER, ".mbox": re.compile(r"\s*From ")}
_MAIL_LINES = re.compile(
    r"(?:From [^\n]*\n)?(?P<headers>(?:[!-9;-~]{1,80}:[^\n]*\n(?:[ \t][^\n]*\n)*+)++)(?:\r?\n|$)?"
)
_MAIL_NAME = re.compile(
    r"^(from|to|date|subject|received|message-id|mime-version):", re.IGNORECASE | re.MULTILINE
)
_FEWEST_MAIL_HEADERS = 4  # of these, in a file whose name does not say that it is a mail
_JSON_LINES = frozenset({".jsonl", ".ndjson"})
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_CHATGPT_NODE = re.compile(r"(?:\[\])?\.mapping\.[^.\[]+\.(?:message|parent|children)")


def text_format(suffix: str, head: str) -> str | None:
    """Kind of a format that is written as text. Returns None if the text has no sign of one.

    Args:
        suffix: of the file's name, in lower case.
        head: first characters of the text; its end may be cut anywhere.
    """
    if suffix in _MAIL_STARTS:
        return "email" if _MAIL_STARTS[suffix].match(head) else None
    if _HTML.match(head[:_HTML_CHARACTERS]):
        return "html"
    if (not suffix or "," in suffix) and _is_mail(head):  # names in a Maildir end in flags: 2,S
        return "email"
    if _WEBVTT.match(head) or _SUBRIP.match(head):
        return "conversation"
    return _json_kind(suffix, head)


def _is_mail(head: str) -> bool:
    """Recognize a message in a folder of mail (Maildir), where names have no suffix."""
    block = _MAIL_LINES.match(head)
    if block is None:
        return False
    names = {match[1].lower() for match in _MAIL_NAME.finditer(block["headers"])}
    return len(names) >= _FEWEST_MAIL_HEADERS


def _json_kind(suffix: str, head: str) -> str | None:
    text = head.lstrip("\ufeff \t\r\n")
    if not text.startswith(("{", "[")):
        return None
    outline = json_outline(text)
    if _is_notebook(outline):
        return "notebook"
    return "conversation" if _is_conversation(outline, suffix in _JSON_LINES) else None


def _is_notebook(outline: Mapping[str, str]) -> bool:
    cells = {".cells", ".worksheets"} & outline.keys()
    typed = {".cells[].cell_type", ".worksheets[].cells[].cell_type"} & outline.keys()
    return bool(typed) or (bool(cells) and ".nbformat" in outline)


def _is_conversation(outline: Mapping[str, str], in_lines: bool) -> bool:
    """Recognize message lists and the exports of Slack, Discord, ChatGPT and Claude."""
    if {"[].chat_messages", ".chat_messages"} & outline.keys():
        return True
    if any(map(_CHATGPT_NODE.match, outline)):
        return True
    prefixes = ("[]", ".messages[]", "[].messages[]", *([""] if in_lines else []))
    return any(_are_messages(outline, prefix) for prefix in prefixes)


def _are_messages(outline: Mapping[str, str], prefix: str) -> bool:
    names = {path.removeprefix(prefix) for path in outline if path.startswith(prefix)}
    if outline.get(f"{prefix}.role") in _ROLES and names & {".content", ".tool_calls"}:
        return True
    if outline.get(f"{prefix}.type") == "message" and ".ts" in names:
        return True
    return names >= {".author", ".content", ".timestamp"} and bool(
        names & {".author.username", ".author.name"}
    )


_TOKEN = re.compile(r"\s*+([{}\[\],:]|\"(?:[^\"\\]++|\\.)*+\"|[^\s{}\[\],:\"]++)", re.DOTALL)
_DEEPEST = 32
_LONGEST = 100


def json_outline(head: str) -> Mapping[str, str]:
    """Map each path in the first value of ``head`` to its first scalar, as it is written.

    ``head`` may end anywhere. A path joins ``.name`` for a member of an object and ``[]`` for any
    element of an array: ``[].role`` is the role of any message in a list. Containers map to ''.
    Names and scalars are cut at 100 characters, and containers below a depth of 32 are not read.
    """
    members: dict[str, str] = {}
    open_containers: list[tuple[str, bool]] = []
    path, is_name, position = "", False, 0
    while token := _TOKEN.match(head, position):
        position = token.end()
        text = token[1]
        if text in "{[":
            members.setdefault(path, "")
            is_name = text == "{"
            path = path if is_name else f"{path}[]"
            open_containers.append((path, is_name))
        elif text in "}]":
            del open_containers[-1:]
        elif text == ",":
            path, is_name = open_containers[-1] if open_containers else ("", False)
        elif text == ":":
            is_name = False
        elif is_name:
            path = f"{path}.{text.strip(chr(34))[:_LONGEST]}"
        else:
            members.setdefault(path, text.strip('"')[:_LONGEST])
        if not open_containers or len(open_containers) > _DEEPEST:
            break
    return members

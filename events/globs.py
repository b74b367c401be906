"""Path patterns in the notation of ``.gitignore``, as regular expressions."""

from __future__ import annotations

import re

__all__ = ["expression", "literal"]

_SPECIAL = re.compile(r"[^A-Za-z0-9_/\x80-\U0010ffff]")


def expression(pattern: str) -> str:
    r"""Return an anchored regular expression that POSIX and Python understand, for one pattern.

    ``*`` and ``?`` match no slash; ``**`` between slashes, or at an end, matches any folders.
    ``[a-z]``, ``[!a-z]`` and ``{a,b}`` are alternatives, and ``\`` escapes a character. A pattern
    without a slash, or with one at its end only, matches at any depth; others match from the
    beginning of the uri. What matches a folder matches everything in it.

    Raises:
        ValueError: a bracket or brace is not closed, or the pattern is empty.
    """
    body = pattern.removeprefix("/").rstrip("/")
    if not body:
        raise ValueError("a path pattern needs more than slashes")
    start = "" if "/" in body or pattern.startswith("/") else "(?:.*/)?"
    end = "/.+" if pattern.endswith("/") else "(?:/.*)?"
    return rf"^{start}{_Translation(body).whole()}{end}\Z"


class _Translation:
    """Translation of one pattern, from its first character to its last."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._open_braces = 0

    def whole(self) -> str:
        parts = []
        while self._at < len(self._pattern):
            parts.append(self._next())
        if self._open_braces:
            raise ValueError("a { has no }: write \\{ for the character itself")
        return "".join(parts)

    def _next(self) -> str:
        character = self._pattern[self._at]
        if character == "*":
            return self._stars()
        self._at += 1
        if character == "?":
            return "[^/]"
        if character == "[":
            return self._class()
        if character == "{":
            self._open_braces += 1
            return "(?:"
        if character == "," and self._open_braces:
            return "|"
        if character == "}" and self._open_braces:
            self._open_braces -= 1
            return ")"
        return literal(self._escaped() if character == "\\" else character)

    def _stars(self) -> str:
        first = self._at
        while self._pattern[self._at : self._at + 1] == "*":
            self._at += 1
        before, after = self._pattern[:first][-1:], self._pattern[self._at : self._at + 1]
        begins = before in ("", "/") or (before in "{," and self._open_braces > 0)
        if self._at - first != len("**") or not begins:
            return "[^/]*"
        if after == "/":
            self._at += 1
            return "(?:.*/)?"
        ends = after == "" or (after in ",}" and self._open_braces > 0)
        return ".+" if ends else "[^/]*"

    def _escaped(self) -> str:
        if self._at == len(self._pattern):
            raise ValueError("a \\ has no character after it")
        self._at += 1
        return self._pattern[self._at - 1]

    def _class(self) -> str:
        is_negated = self._pattern[self._at : self._at + 1] in ("!", "^")
        self._at += is_negated
        members: list[str] = []
        while self._pattern[self._at : self._at + 1] != "]" or not members:
            first = self._member()
            last = first
            if re.match(r"-[^\]]", self._pattern[self._at :], re.DOTALL):
                self._at += 1
                last = self._member()
            if not first <= last:
                raise ValueError(f"the range {first}-{last} is empty")
            if first <= "/" <= last:
                raise ValueError("a class in brackets must not contain /")
            members.append(literal(first) + (f"-{literal(last)}" if first < last else ""))
        self._at += 1
        return f"[{'^/' if is_negated else ''}{''.join(members)}]"

    def _member(self) -> str:
        character = self._pattern[self._at : self._at + 1]
        if not character:
            raise ValueError("a [ has no ]: write \\[ for the character itself")
        if character == "[" and self._pattern[self._at + 1 : self._at + 2] in (":", ".", "="):
            raise ValueError("named classes such as [:alpha:] are unknown: write [A-Za-z]")
        self._at += 1
        return self._escaped() if character == "\\" else character


def literal(text: str) -> str:
    """Return a regular expression for a text, which may stand within brackets."""
    return _SPECIAL.sub(r"\\\g<0>", text)

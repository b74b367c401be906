"""Conditions as people write them.

``version >= 3 and team in (a, b)`` is the same as ``{"and": [{"field": "version", "op": "gte",
"value": 3}, {"field": "team", "op": "in", "value": ["a", "b"]}]}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from events.fields import Scalar
from runtime import protocol_limits

__all__ = ["parsed"]

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<mark>[(),]|>=|<=|!=|<>|==|=|>|<)
    |"(?P<double>(?:[^"\\]|\\.)*)"
    |'(?P<single>(?:[^'\\]|\\.)*)'
    |(?P<word>[^\s(),=<>!'"]+)
    |(?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?[0-9]+(?P<fraction>\.[0-9]+)?(?P<exponent>[eE][+-]?[0-9]+)?")
_SIGNS = {
    "=": "eq",
    "==": "eq",
    "!=": "ne",
    "<>": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
}
_KEYWORDS = frozenset({"and", "or", "not", "in", "between", "like", "exists"})


class _Token(NamedTuple):
    """A mark, keyword or word of a text, with the number of its first character."""

    at: int
    text: str
    kind: Literal["mark", "quoted", "word", "end"]

    @property
    def keyword(self) -> str:
        """The mark, or the keyword in lower case; empty for names and values."""
        if self.kind == "mark":
            return self.text
        return self.text.lower() if self.kind == "word" else ""


def parsed(text: str) -> dict[str, Any]:
    """Read conditions as people write them; the result is what ``Where`` is made of.

    Raises:
        ValueError: the text is not of this form; the message has the place and what it expects.
    """
    if len(text) > protocol_limits.CONDITION_CHARACTERS:
        raise ValueError(f"has over {protocol_limits.CONDITION_CHARACTERS:,} characters")
    parser = _Parser(list(_tokens(text)))
    return parser.whole()


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            begin = len(text) - len(text[at:].lstrip())
            raise ValueError(f"at character {begin + 1}: an unexpected quotation mark or !")
        group = str(match.lastgroup)
        content = match[group]
        begin, at = match.start(group), match.end()
        if group in ("double", "single"):
            yield _Token(begin, re.sub(r"\\(.)", r"\1", content, flags=re.DOTALL), "quoted")
        elif group == "mark":
            yield _Token(begin + 1, content, "mark")
        elif group == "word":
            yield _Token(begin + 1, content, "word")
        else:
            yield _Token(begin + 1, "", "end")
            return


class _Parser:
    """Recursive descent over ``or``, ``and``, ``not`` and single conditions."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def whole(self) -> dict[str, Any]:
        conditions = self._either()
        if self._token.kind != "end":
            raise self._expected("and, or, or the end")
        return conditions

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *keywords: str) -> str:
        """Consume the next token if it is one of these; '' if it is not."""
        keyword = self._token.keyword
        if keyword not in keywords:
            return ""
        self._next += 1
        return keyword

    def _expected(self, expectation: str) -> ValueError:
        token = self._token
        if token.kind == "end":
            return ValueError(f"at the end: {expectation} is missing")
        return ValueError(f"at character {token.at}: {expectation} instead of {token.text[:40]!r}")

    def _either(self) -> dict[str, Any]:
        parts = [self._both()]
        while self._take("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else {"or": parts}

    def _both(self) -> dict[str, Any]:
        parts = [self._negated()]
        while self._take("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else {"and": parts}

    def _negated(self) -> dict[str, Any]:
        self._depth += 1
        if self._depth > protocol_limits.CONDITION_DEPTH:
            raise ValueError(f"is nested over {protocol_limits.CONDITION_DEPTH} levels")
        if self._take("not"):
            condition = {"not": self._negated()}
        elif self._take("("):
            condition = self._either()
            if not self._take(")"):
                raise self._expected("and, or, or )")
        else:
            condition = self._single()
        self._depth -= 1
        return condition

    def _single(self) -> dict[str, Any]:
        field = self._token
        if field.kind not in ("word", "quoted") or field.keyword in _KEYWORDS:
            raise self._expected("the name of a field")
        self._next += 1
        is_negated = bool(self._take("not"))
        operator = self._take("in", "between", "like", "exists", *({} if is_negated else _SIGNS))
        if not operator:
            raise self._expected("an operator (= != > >= < <= in between like exists)")
        condition: dict[str, Any] = {"field": field.text, "op": _SIGNS.get(operator, operator)}
        if operator == "in":
            condition["value"] = self._list()
        elif operator == "between":
            least = self._value()
            if not self._take("and"):
                raise self._expected("and")
            condition["value"] = [least, self._value()]
        elif operator != "exists":
            condition["value"] = self._value()
        return {"not": condition} if is_negated else condition

    def _list(self) -> list[Scalar]:
        if not self._take("("):
            raise self._expected("( and a list of values")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take(")"):
            raise self._expected(", or )")
        return values

    def _value(self) -> Scalar:
        token = self._token
        if token.kind not in ("word", "quoted"):
            raise self._expected("a value")
        self._next += 1
        if token.kind == "quoted":
            return token.text
        if token.text.lower() in ("true", "false"):
            return token.text.lower() == "true"
        number = _NUMBER.fullmatch(token.text)
        if number is None:
            return token.text
        return float(token.text) if number["fraction"] or number["exponent"] else int(token.text)

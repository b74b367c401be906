"""Patterns of exact search: literals and safe regular expressions, converted for Postgres.

The syntax is that of RE2 and ripgrep, as far as an automaton can match it within a line. A pattern
that would need backtracking (a reference to a group, lookaround) is refused, and so is one whose
automaton would be large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from runtime.errors import UsageError
from store.search.keyword.tokenizer import EXACT, terms

__all__ = ["MOST_STATES", "Pattern", "Word", "phrase_expression", "phrase_words", "words_of_any"]

MOST_STATES = 1_000
"""Most characters and classes of an expression, each counted as often as it may be repeated."""

_MOST_REPEATS = 255
_MOST_DEPTH = 30
_UNKNOWN, _BOUNDARY = "\0", "\n"
_SPECIAL = frozenset(r"\^$.|?*+()[]{}")
_CLASSES = {"d": "[:digit:]", "w": "[:alnum:]_", "s": r" \t\r\f\v"}
_BOUNDARIES = {"b": r"\y", "<": r"\m", ">": r"\M"}
_CONTROLS = {"t": "\t", "f": "\f", "v": "\v", "r": "\r"}
_QUANTIFIER = re.compile(r"([*+?]|\{(\d{1,5})(,(\d{0,5}))?\})\??")
_GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_]\w*>)|(?!\?))")
_CODE = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
_NAMED = re.compile(r"\[:(?:alnum|alpha|blank|digit|lower|punct|upper|xdigit):\]")
_LITERALS = re.compile(f"[{_UNKNOWN}{_BOUNDARY}]")
_WORD_ALONE = re.compile(rf"{_UNKNOWN}?{_BOUNDARY}+\w+{_BOUNDARY}+{_UNKNOWN}?")
_WHOLE_WORD = re.compile(rf"(?<![\w{_UNKNOWN}])\w+(?![\w{_UNKNOWN}])")


class Word(NamedTuple):
    """A word of each match: its chunk has one of the ``terms`` of the keyword index.

    ``text`` is the word as the chunk has it; it is empty if the case of letters is ignored.
    """

    terms: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that is found within lines.

    ``sql`` is a regular expression of Postgres. ``literal`` is a text that each match contains, or
    empty; ``is_literal`` if it is all of the pattern. A chunk with a match has each of ``words``.
    A match ``is_word`` if it is one whole word, the same in each match.
    """

    sql: str
    literal: str
    is_literal: bool
    words: tuple[Word, ...]
    is_word: bool = False

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        regex: bool = False,
        ignore_case: bool = False,
        whole_words: bool = False,
    ) -> Pattern:
        """Convert a literal or, with ``regex``, an expression.

        With ``whole_words``, no letter, digit or underscore is next to a match.

        Raises:
            UsageError: the pattern is wrong or not safe; the message gives the place.
        """
        if "\n" in text:
            raise UsageError("a pattern cannot contain a line end", "search for one line of it")
        if regex and text.startswith("(?i)"):
            text, ignore_case = text.removeprefix("(?i)"), True
        part = _Reader(text).read() if regex else _literal(text)
        sql, skeleton = part.sql, f"{_UNKNOWN}{part.skeleton}{_UNKNOWN}"
        if whole_words:
            sql = rf"(?<!\w)(?:{sql})(?!\w)"
            skeleton = f"{_BOUNDARY}{part.skeleton}{_BOUNDARY}"
        literal = "" if ignore_case else max(_LITERALS.split(skeleton), key=len)
        words = dict.fromkeys(_WHOLE_WORD.findall(skeleton))
        required = {
            alternatives: Word(alternatives, "" if ignore_case else word)
            for word in words
            for alternatives in _required(word, ignore_case)
        }
        is_literal = not (regex or ignore_case or whole_words)
        sql = f"(?n{'i' * ignore_case}){sql}"
        is_word = _WORD_ALONE.fullmatch(skeleton) is not None
        return cls(sql, literal, is_literal, tuple(required.values()), is_word)


def phrase_expression(phrase: str) -> str:
    """Expression of Postgres for whole words that follow each other, also on several lines.

    Letters of either case match, and any white space between the words.
    """
    words = r"\s+".join(_literal(word).sql for word in phrase.split())
    return rf"(?i)(?<!\w)(?:{words})(?!\w)"


def phrase_words(phrase: str) -> Iterator[Word]:
    """Words of a chunk with a phrase, in any case of their letters."""
    for word in re.findall(r"\w+", phrase):
        for alternatives in _required(word, ignore_case=True):
            yield Word(alternatives, "")


def words_of_any(names: Sequence[str]) -> Iterator[Word]:
    """Words of a chunk with one of some names, in any case of their letters."""
    words = [next(phrase_words(name), None) for name in names]
    alternatives = [word.terms for word in words if word is not None]
    if alternatives and len(alternatives) == len(names):
        yield Word(tuple(chain.from_iterable(alternatives)), "")


def _required(word: str, ignore_case: bool) -> Iterator[tuple[str, ...]]:
    """Terms that a chunk with a whole word has: one of each tuple."""
    if not ignore_case:
        yield from ((term,) for term in terms(word))
        return
    lower = word.lower()
    whole = lower.strip("_")
    if not lower.isascii() or len(whole) < 3:
        return
    lower_terms = terms(lower)
    exact = [term for term in lower_terms if term.startswith(EXACT)]
    if exact:
        yield (exact[0],)
    elif lower_terms:
        yield (lower_terms[0], EXACT + whole)  # as in ``GitHub``, which is two parts


@dataclass(frozen=True, slots=True)
class _Part:
    """A converted part; ``size`` counts its characters and classes, repetitions included.

    ``skeleton`` has the characters that each match has, ``_BOUNDARY`` for a place at which no word
    continues, and ``_UNKNOWN`` for anything else.
    """

    sql: str
    skeleton: str
    size: int


def _literal(text: str) -> _Part:
    sql = "".join(f"\\{character}" if character in _SPECIAL else character for character in text)
    return _Part(sql, text, len(text))


class _Reader:
    """Recursive descent over an expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> _Part:
        part = self._alternatives()
        if self._at < len(self._text):
            raise self._error("this ) closes nothing", r"write \) for the character")
        return part

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        sizes = sum(part.size for part in parts)
        return self._checked(_Part("|".join(part.sql for part in parts), _UNKNOWN, sizes))

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return self._checked(
            _Part(
                "".join(part.sql for part in parts),
                "".join(part.skeleton for part in parts),
                sum(part.size for part in parts),
            )
        )

    def _repeated(self, atom: _Part) -> _Part:
        match = _QUANTIFIER.match(self._text, self._at)
        if match is None:
            return atom
        if not atom.size:
            raise self._error("nothing to repeat", r"escape the character with \ ")
        sign, low, comma, high = match.groups()
        least, most = {"*": (0, 1), "+": (1, 1), "?": (0, 1)}.get(sign, (0, 0))
        if low is not None:
            least = int(low)
            most = int(high) if high else least + bool(comma)
            if max(least, most) > _MOST_REPEATS or (high and most < least):
                raise self._error(f"wrong bounds {sign}", f"use 0 to {_MOST_REPEATS}, least first")
        self._at = match.end()
        if _QUANTIFIER.match(self._text, self._at):
            raise self._error("nothing to repeat", "group what is repeated twice: (?:a+)*")
        skeleton = f"{atom.skeleton}{_UNKNOWN}" if least else _UNKNOWN
        return self._checked(_Part(atom.sql + match[0], skeleton, atom.size * max(1, most)))

    def _atom(self) -> _Part:
        character = self._text[self._at]
        if character == "(":
            return self._group()
        self._at += 1
        match character:
            case "^" | "$":
                return _Part(character, _BOUNDARY, 0)
            case ".":
                return _Part(".", _UNKNOWN, 1)
            case "[":
                return self._set()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._at -= 1
                raise self._error("nothing to repeat", rf"write \{character} for the character")
        return _literal(character)

    def _group(self) -> _Part:
        match = _GROUP.match(self._text, self._at)
        if match is None:
            raise self._error(
                "lookaround, comments and options are not supported",
                "write (?i) at the beginning, or two patterns",
            )
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._error("too many groups within groups", f"use at most {_MOST_DEPTH}")
        self._at = match.end()
        part = self._alternatives()
        if not self._takes(")"):
            raise self._error("a group is not closed", r"add ), or write \( for the character")
        self._depth -= 1
        return _Part(f"(?:{part.sql})", part.skeleton, max(1, part.size))

    def _escape(self) -> _Part:
        name = self._text[self._at : self._at + 1]
        if name in _BOUNDARIES:
            self._at += 1
            return _Part(_BOUNDARIES[name], _BOUNDARY, 0)
        if name == "B":
            self._at += 1
            return _Part(r"\Y", _UNKNOWN, 0)
        if name and name.lower() in _CLASSES:
            self._at += 1
            negated = "^" if name.isupper() else ""
            return _Part(f"[{negated}{_CLASSES[name.lower()]}]", _UNKNOWN, 1)
        return _literal(self._escaped())

    def _escaped(self) -> str:
        """Read the rest of an escape that stands for one character."""
        name = self._text[self._at : self._at + 1]
        code = _CODE.match(self._text, self._at)
        if code is not None:
            self._at = code.end()
            number = int(next(filter(None, code.groups())), 16)
            is_character = 0 < number < 0xD800 or 0xDFFF < number <= 0x10FFFF
            if is_character and chr(number) != "\n":
                return chr(number)
            raise self._error("not a character of a line", "use the code of another character")
        if name.isdigit():
            raise self._error("references to groups are not supported", "write the text again")
        if not name or (name.isalnum() and name not in _CONTROLS):
            raise self._error(f"unknown escape \\{name}", r"write \\ for a backslash")
        self._at += 1
        return _CONTROLS.get(name, name)

    def _set(self) -> _Part:
        """Read the rest of ``[...]``."""
        begin = self._at
        sql = ["[", "^" if self._takes("^") else ""]
        count = 0
        while count == 0 or not self._takes("]"):
            if self._at >= len(self._text):
                self._at = begin
                raise self._error("a set is not closed", r"add ], or write \[ for the character")
            sql.append(self._member())
            count += 1
        return self._checked(_Part("".join([*sql, "]"]), _UNKNOWN, 1))

    def _member(self) -> str:
        named = _NAMED.match(self._text, self._at)
        if named is not None:
            self._at = named.end()
            return named[0]
        name = self._text[self._at + 1 : self._at + 2]
        if self._text[self._at] == "\\" and name in _CLASSES:
            self._at += 2
            return _CLASSES[name]
        first = self._one()
        if self._text.startswith("-", self._at) and self._text[self._at + 1 : self._at + 2] != "]":
            self._at += 1
            last = self._one()
            if last < first:
                raise self._error(f"wrong range {first}-{last}", "write the lower one first")
            if first <= "\n" <= last:  # a match stays within a line
                return f"{_in_set(first)}-\t\v-{_in_set(last)}"
            return f"{_in_set(first)}-{_in_set(last)}"
        return _in_set(first)

    def _one(self) -> str:
        character = self._text[self._at : self._at + 1]
        self._at += 1
        return self._escaped() if character == "\\" else character

    def _takes(self, character: str) -> bool:
        taken = self._text.startswith(character, self._at)
        self._at += taken
        return taken

    def _checked(self, part: _Part) -> _Part:
        if part.size > MOST_STATES:
            raise self._error(
                f"the expression has {part.size:,} characters, repetitions included",
                f"use at most {MOST_STATES:,}: smaller bounds, or * instead of bounds",
            )
        return part

    def _error(self, problem: str, remedy: str) -> UsageError:
        return UsageError(f"pattern, character {self._at + 1}: {problem}", remedy)


def _in_set(character: str) -> str:
    return f"\\{character}" if character in r"\]^-[" else character

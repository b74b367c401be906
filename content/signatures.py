"""Signature and documentation of a unit of code, found without a syntax tree.

The signature is the lines that define the unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

__all__ = [
    "OWNER_MARK",
    "Signature",
    "definitions_of",
    "documentation_of",
    "is_defined_in",
    "names_in",
    "owners_of",
    "signature_of",
    "symbols_of",
]

_MOST_LINES = 8
_LONGEST_LINE = 400
_FIRST_LINES = 3
OWNER_MARK = r"\.|::|#|->|/|\\"
"""Expression for what stands between a name and its owner, in any language."""

_OWNER_MARK = re.compile(OWNER_MARK)
_SEPARATORS = re.compile(r"::|\.")
_COMMENT = re.compile(r"\s*(#(?!\s*define\b)|//|/\*|\*|--|;|\"\"\"|'''|@|\[\[?\w)")
_MODIFIERS = (
    r"abstract|async|case|companion|const|constexpr|create|data|declare|default|export|extern|"
    r"final|friend|inline|inner|internal|local|open|or|override|partial|private|protected|"
    r"pub(?:\([^)]*\))?|public|readonly|replace|sealed|static|suspend|template\s*<[^>]*>|typedef|"
    r"unsafe|value|virtual"
)
_KEYWORDS = (
    r"actor|class|contract|const|def\w*|define|enum|extension|fn|fun|func|function|impl|interface|"
    r"let|macro_rules!|message|mixin|module|namespace|object|package|proc|procedure|protocol|record|"
    r"service|struct|sub|table|trait|type|union|val|var|view"
)
_DEFINES = re.compile(rf"\s*#?\s*(?:(?:{_MODIFIERS})\s+)*(?:{_KEYWORDS})(?!\w)\*?(?:\s*\([^)]*\))?")
_OWNERS = r"\s*(?:<[^>]*>\s*)?(?:(?:class|function|interface|struct)\s+)?(?:[\w$]+(?:\.|::?|#))*"
_OF_FILE = re.compile(r"\s*(?:module|namespace|package)\s")
"""A unit that is the whole file, so another one of its name is meant."""

_BEFORE_NAME = re.compile(r"[^=(\"']*")
_PARAMETERS = re.compile(r"\s*[(<={:\[]")
_STATEMENT = re.compile(
    r"\s*(await|case|defer|elif|else|for|go|if|new|return|switch|throw|try|while|with|yield)\b"
)
_BODY_FOLLOWS = re.compile(r"([{:]|=>|->.*|\bwhere\b.*)\s*((#|//|/\*).*)?$")
_BODY_BEGINS = re.compile(r"\s*(\{|:|->|=>|where\b)")
_BODY_ENDS = re.compile(r"\s*([)}\]]|end\b)")
_DOCSTRING = re.compile(r"(\"{3}|'{3})(.+?)(?:\n\s*\n|\1|\Z)", re.DOTALL)
_COMMENTS = re.compile(
    r"(?:^[ \t]*(?://[/!]?|/\*+|(?:#|\*|--)(?=[ \t]))[ \t]*\w.*(?:\n|\Z))+", re.MULTILINE
)
_QUOTES = ('"""', "'''")
_MARKS_OF_COMMENTS = ("//", "#", "*", "--")
"""A search for these takes a fraction of the time of the regular expressions."""

_COMMENT_MARKS = re.compile(r"^[ \t]*[/#*!-]+", re.MULTILINE)


class Signature(NamedTuple):
    """Lines that define a unit, joined by line feeds; ``line`` is the number of the first."""

    line: int
    text: str


def symbols_of(symbol: str | None) -> tuple[str, ...]:
    """Names in the symbol of a chunk of code, each of a unit that it contains or is in."""
    return tuple(symbol.split(", ")) if symbol else ()


def documentation_of(text: str) -> str:
    """Return the first paragraph of the first docstring in a text, or of its first comment.

    Returns '' if it has neither.
    """
    quotes = [at for mark in _QUOTES if (at := text.find(mark)) >= 0]
    docstring = _DOCSTRING.search(text, min(quotes)) if quotes else None
    if docstring is not None:
        return docstring[2].strip()
    may_have_comments = any(mark in text for mark in _MARKS_OF_COMMENTS)
    comments = _COMMENTS.search(text) if may_have_comments else None
    return "" if comments is None else _COMMENT_MARKS.sub("", comments[0]).strip()


def owners_of(name: str) -> list[tuple[str, str]]:
    """Units around a unit by its qualified name, outermost first.

    Each is the qualified name of the owner with the beginning of the names of all units in it:
    ``("Foo", "Foo.")`` for ``Foo.bar``.
    """
    separators = [match for match in _SEPARATORS.finditer(name) if match.start()]
    return [(name[: match.start()], name[: match.end()]) for match in separators]


def signature_of(content: str, name: str, first_line: int = 1) -> Signature | None:
    """Return the signature of the unit ``name``, or None if the text does not define it.

    The text begins with line ``first_line``, and comments, decorators or other units may precede
    the definition. A line defines the unit if a keyword of definitions precedes the name, or if it
    is among the first lines of code, the name is followed by parameters, and a body follows. So the
    middle of a function that calls itself has no signature.
    """
    row = _row_of_definition(content, name)
    if row is None:
        return None
    lines = content.split("\n")
    return Signature(first_line + row, "\n".join(_whole(lines[row : row + _MOST_LINES])))


def names_in(symbol: str) -> tuple[str, ...]:
    """The name of a unit after those of its owners, whatever stands between them."""
    names = tuple(_OWNER_MARK.split(symbol))
    return names if all(names) else (symbol,)


def definitions_of(content: str, symbol: str, first_line: int = 1) -> list[Signature]:
    """Return the definitions of a unit in a text, each from its signature to its last line.

    If the symbol has an owner, units of that name in others are left out. The last line is found by
    the indentation, so lines at the left edge may end a definition early.
    """
    *owners, own = names_in(symbol)
    lines = content.split("\n")
    named = list(_rows_with(lines, own))
    begins = re.compile(rf"{_OWNERS}{re.escape(own)}(?!\w)")
    rows = [row for row in named if _begins(lines[row], begins)]
    rows = rows or [row for row in named if _has_body(lines, row, own)]
    rows = [row for row in rows if not _OF_FILE.match(lines[row])] or rows
    if owners:
        rows = [row for row in rows if _is_in(lines, row, owners[-1])] or rows
    return [
        Signature(first_line + row, "\n".join(lines[row : _end_of_unit(lines, row)]))
        for row in rows
    ]


def is_defined_in(content: str, name: str) -> bool:
    """Return whether a text has the signature of the unit ``name``."""
    return _row_of_definition(content, name) is not None


def _row_of_definition(content: str, name: str) -> int | None:
    own = _SEPARATORS.split(name)[-1]
    if not own or own not in content:  # as in most chunks, so their lines need not be divided
        return None
    lines = content.split("\n")
    rows = _rows_with(lines, own)
    row = next((row for row in rows if _defines(lines[row][:_LONGEST_LINE], own)), None)
    if row is not None:
        return row
    named = _rows_with(lines, own)
    code = (row for row, line in enumerate(lines) if line.strip() and not _COMMENT.match(line))
    beginning = {*islice(code, _FIRST_LINES)}.intersection(named)
    return next((row for row in sorted(beginning) if _has_body(lines, row, own)), None)


def _rows_with(lines: Sequence[str], name: str) -> Iterator[int]:
    """Rows of the lines that have a name, without those of comments."""
    return (
        row
        for row, line in enumerate(lines)
        if name in line and line.strip() and not _COMMENT.match(line)
    )


def _begins(line: str, name: re.Pattern[str]) -> bool:
    """Return whether a keyword of definitions and the name, with its owners, begin a line."""
    keyword = _DEFINES.match(line[:_LONGEST_LINE])
    return keyword is not None and name.match(line[:_LONGEST_LINE], keyword.end()) is not None


def _is_in(lines: Sequence[str], row: int, owner: str) -> bool:
    """Return whether a unit is in an owner, by its own line or by those around it."""
    if re.search(rf"(?<!\w){re.escape(owner)}(?!\w)", lines[row][:_LONGEST_LINE]):
        return True
    indent = _indent(lines[row])
    for line in reversed(lines[:row]):
        if line.strip() and _indent(line) < indent:
            if _defines(line[:_LONGEST_LINE], owner):
                return True
            indent = _indent(line)
    return False


def _end_of_unit(lines: Sequence[str], row: int) -> int:
    """Row behind the last line of a unit, which is not indented less than its first."""
    indent = _indent(lines[row])
    end = row + len(_whole(lines[row : row + _MOST_LINES]))
    for below, line in enumerate(lines[end:], start=end):
        if not line.strip():
            continue
        if _indent(line) == indent and _BODY_ENDS.match(line):
            end = below + 1
            if not line.lstrip().startswith(")"):
                return end
        elif _indent(line) > indent or (_indent(line) == indent and _BODY_BEGINS.match(line)):
            end = below + 1
        else:
            return end
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _defines(line: str, name: str) -> bool:
    """Return whether a keyword of definitions precedes the name in a line."""
    keyword = _DEFINES.match(line)
    return keyword is not None and _end_of_name(line, name, keyword.end()) is not None


def _end_of_name(line: str, name: str, start: int = 0) -> int | None:
    """Return the end of a name in a line, before any value or parameters. None if it has none."""
    before = _BEFORE_NAME.match(line, start)
    limit = (before.end() if before else start) + 1
    at = line.find(name, start)
    while 0 <= at < limit:
        end = at + len(name)
        is_word = not _is_word(line[at - 1 : at]) and not _is_word(line[end : end + 1])
        if is_word:
            return end
        at = line.find(name, at + 1)
    return None


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _has_body(lines: Sequence[str], row: int, name: str) -> bool:
    """Return whether a line names the unit, and the body of a unit follows its signature."""
    line = lines[row][:_LONGEST_LINE]
    end = None if _STATEMENT.match(line) else _end_of_name(line, name)
    if end is None or not _PARAMETERS.match(line, end):
        return False
    signature = _whole(lines[row : row + _MOST_LINES])
    below = lines[row + len(signature) : row + len(signature) + 1]
    return _BODY_FOLLOWS.search(signature[-1]) is not None or any(map(_BODY_BEGINS.match, below))


def _whole(lines: Sequence[str]) -> list[str]:
    """Lines of a signature: up to the one that closes its brackets."""
    depth = 0
    for count, line in enumerate(lines, start=1):
        depth += _depth_of(line[:_LONGEST_LINE])
        if depth <= 0:
            return [line[:_LONGEST_LINE] for line in lines[:count]]
    return [lines[0][:_LONGEST_LINE]]


def _depth_of(line: str) -> int:
    """Number of brackets that a line opens, less those that it closes."""
    return line.count("(") + line.count("[") - line.count(")") - line.count("]")

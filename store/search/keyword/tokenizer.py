"""Tokeniser: converts texts to the terms they are found by, both documents and queries.

A word gives its stem. An identifier gives the stems of its parts, and the whole identifier after
``EXACT``, so that ``getHTTPResponse`` is found by "http responses" and, better, by its name. A
dotted path (``asyncio.Queue``, ``std::vector``) gives its names and the whole path. Text without
spaces (Chinese, Japanese, Korean) gives pairs of neighbouring characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import TypeVar

import Stemmer

from runtime.errors import ConfigurationError
from store.generations.catalog import Generation

__all__ = [
    "DEFINES",
    "EXACT",
    "STOP_WORDS",
    "TOKENS_VERSION",
    "TextCache",
    "defined_names",
    "definition_expression",
    "pieces",
    "require_known_terms",
    "terms",
    "terms_of",
    "words_of_piece",
]

Value = TypeVar("Value")


class TextCache(dict[str, Value]):
    """A mapping that computes missing values, and caches those of short keys.

    It is a dict so that a lookup runs entirely in C. When it is full, it is cleared.
    """

    LIMIT = 200_000
    LONGEST = 64
    """Longer keys rarely recur, and hostile ones would fill the memory."""

    def __init__(self, make: Callable[[str], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: str) -> Value:
        value = self._make(key)
        if len(key) <= self.LONGEST:
            if len(self) >= self.LIMIT:
                self.clear()
            self[key] = value
        return value


TOKENS_VERSION = 1
"""Increased when the same text would give other terms."""

EXACT = "="
"""Prefix of the term of a whole identifier; no other term begins with it."""

DEFINES = ":"
"""Prefix of the term by which the definitions of a name are found; texts give no such term."""

_FUNCTION_WORDS = """
a about all also an and any are as at be been but by can could do does each for from had has have he
her his how i if in into is it its may must no not of on or our she should so such than that the
their them then there these they this those to us was we were what when where which who whom whose
why will with would you your
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that give no term. Question words are included: they do not describe the topic."""

MAX_WORD_CHARACTERS = 40
"""A longer run of letters is not a word, but a key, a hash or encoded data."""

MAX_IDENTIFIER_CHARACTERS = 80
MAX_PATH_NAMES = 6
MIN_LENGTH = 4
MAX_LENGTH = 30
"""Lengths of the words that may be corrections of a query's words."""

_RUN = re.compile(r"\w+(?:(?:\.|::|->|/)\w+)*")
_JOINT = re.compile(r"\.|::|->|/")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_BETWEEN_PIECES = bytes(
    ord(" ") if code >= 128 or re.match(r"[^\w./:>-]", chr(code), re.ASCII) else code
    for code in range(256)
)
"""Translation table that replaces every byte outside of runs by a blank."""


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repeats included; each at most 81 characters long."""
    return list(chain.from_iterable(map(_remembered.__getitem__, pieces(text))))


def pieces(text: str) -> list[str]:
    """Parts of a text, in order, whose terms do not depend on each other."""
    if text.isascii():
        return text.encode().translate(_BETWEEN_PIECES).decode().split()
    return _RUN.findall(_fold(text))


def terms_of(piece: str) -> tuple[str, ...]:
    """The terms of one piece."""
    return _remembered[piece]


def _fold(text: str) -> str:
    """Replace compatibility forms and accented letters by plain letters: ``é`` by ``e``."""
    spread = unicodedata.normalize("NFKD", text)
    plain = "".join(letter for letter in spread if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", plain)


def _terms_of_piece(piece: str) -> tuple[str, ...]:
    if piece.isascii() and piece.isidentifier():
        return tuple(_terms_of_name(piece))
    return tuple(chain.from_iterable(map(_terms_of_run, _RUN.findall(piece))))


def _terms_of_run(run: str) -> list[str]:
    names = _JOINT.split(run)
    run_terms = list(chain.from_iterable(map(_terms_of_name, names)))
    if 1 < len(names) <= MAX_PATH_NAMES and len(run) <= MAX_IDENTIFIER_CHARACTERS:
        run_terms.append(EXACT + run.lower())
    return run_terms


def _terms_of_name(name: str) -> list[str]:
    if not name.isascii() and _SPACELESS.search(name):
        return _pairs(name)
    parts = _parts(name)
    stem = _stemmer().stemWord
    name_terms: list[str] = [stem(part) for part in parts if _tells(part)]
    if len(parts) > 1:
        whole = name.strip("_").lower()
        if 2 < len(whole) <= MAX_IDENTIFIER_CHARACTERS:
            name_terms.append(EXACT + whole)
    return name_terms


def _parts(name: str) -> list[str]:
    if not name.isascii():
        return [part.lower() for part in name.split("_") if part]
    if name.islower() and name.isalpha():
        return [name]
    return [part.lower() for part in _PART.findall(name)]


def _tells(part: str) -> bool:
    """Return whether a part of a name is meaningful by itself."""
    if len(part) == 1:
        return part.isdigit() or not part.isascii()
    return len(part) <= MAX_WORD_CHARACTERS and part not in STOP_WORDS


def _pairs(name: str) -> list[str]:
    pairs = [term for word in _SPACELESS.split(name) if word for term in _terms_of_name(word)]
    for run in _SPACELESS.findall(name):
        pairs += [a + b for a, b in pairwise(run)] or [run]
    return pairs


@lru_cache(1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)


def require_known_terms(project: str, generation: Generation) -> None:
    """Make sure that this code converts texts to the same terms as those of a generation.

    Raises:
        ConfigurationError: it produces other terms, by which nothing would be found.
    """
    version = generation.recipe.tokens
    if version != TOKENS_VERSION:
        raise ConfigurationError(
            f"generation {generation.id} of {project} has keyword terms of version {version}, but "
            f"this Headrace produces version {TOKENS_VERSION}",
            f"run `headrace replay --project {project}`, or use the Headrace that built it",
        )


_remembered = TextCache(_terms_of_piece)


def words_of_piece(piece: str) -> tuple[str, ...]:
    """Terms of a piece usable as corrections: of letters only, and of a suitable length."""
    return tuple(
        term for term in terms_of(piece) if MIN_LENGTH <= len(term) <= MAX_LENGTH and term.isalpha()
    )


MAX_DEFINED_NAMES = 64
"""Names per chunk that it is found by as their definition."""

_MODIFIERS = (
    "abstract|async|case|const|data|declare|default|export|extern|final|inline|internal|local|open|"
    "override|partial|private|protected|pub|public|sealed|static|suspend|unsafe|virtual"
)
_BEHIND_NAME = (
    r"(?=[ \t]*(?:[(\[<:{=;,\n]|$)|[ \t]+\w+(?:\n|$)"
    r"|[ \t]+(?:as|extends|from|func|implements|interface|is|of|struct|where)\b)"
)
_KEYWORDS = (
    r"def|defp|defmodule|class|enum|fn|fun|func|function\*?|interface|macro|macro_rules!|message|"
    r"module|namespace|object|protocol|record|rpc|struct|trait|type|typedef|union"
)
_DEFINITIONS = (
    re.compile(
        rf"\n[ \t]*+(?:(?:{_MODIFIERS})(?:\([^()\n]*\))?[ \t]++)*+(?:{_KEYWORDS})"
        rf"[ \t]++(?:\([^()\n]*\)[ \t]*+)?(?:self\.)?([^\W\d][\w$]*+){_BEHIND_NAME}"
    ),
    re.compile(
        rf"\n(?:(?:{_MODIFIERS}|let|mut|val|var)[ \t]++)*+([^\W\d][\w$]*+)"
        r"[ \t]*+(?::[^=\n]*+)?=(?!=)"
    ),
)
"""Definitions by keyword, and constants at the left edge."""

_FUNCTION = re.compile(
    r"\n[ \t]*+(?:[\w<>\[\],.?&*:~]++[ \t]++){0,8}?([^\W\d][\w$]*+)[ \t]*+\([^()\n;]*+\)"
    r"[^(){};\n]*+\{\n"
)
"""Functions of languages that begin them without a keyword."""

_NOT_NAMES = frozenset({"catch", "for", "foreach", "function", "if", "switch", "while", "with"})
_STATEMENTS = (
    "await|case|catch|defer|do|elif|else|for|foreach|go|guard|if|match|new|return|switch|throw|try|"
    "until|when|while|with|yield"
)
_SYMBOL_SEPARATOR = re.compile(r"\.|::|#|/")


def defined_names(symbol: str | None, content: str) -> frozenset[str]:
    """Names that a chunk of code defines, by its symbol and by the form of its lines.

    A chunk's symbol names the unit that it is, or a part of. The lines name what is in it: the
    methods of a small class, and constants.
    """
    symbols = () if symbol is None else symbol.split(", ")
    names = [_SYMBOL_SEPARATOR.split(name)[-1] for name in symbols]
    text = f"\n{content}"
    for definition in _DEFINITIONS if "{\n" not in text else (*_DEFINITIONS, _FUNCTION):
        names += definition.findall(text)
    distinct = dict.fromkeys(name for name in names if name not in _NOT_NAMES)
    return frozenset(islice(filter(None, distinct), MAX_DEFINED_NAMES))


def definition_expression(name: str) -> str:
    r"""Expression of Postgres for lines that define a function, class or method, case and all.

    It is meant for chunks whose ``defined_names`` have the name in some case. These have constants
    too, and names of calls that begin a block (``if valid(x) {``), which do not match.
    ``name`` is an expression itself, with its signs escaped.
    """
    before = rf"(?:(?:{_MODIFIERS})(?:\([^()\n]*\))?[ \t]+)*"
    by_keyword = rf"(?:{_KEYWORDS})[ \t]+(?:\([^()\n]*\)[ \t]*)?(?:self\.)?{name}{_BEHIND_NAME}"
    by_value = (
        rf"(?:(?:let|val|var)[ \t]+)?{name}[ \t]*(?::[^=\n]*)?=[ \t]*(?:async[ \t]+)?"
        r"(?:function\M|(?:\([^()\n]*\)[^=\n]*|\w+[ \t]*)=>)"
    )
    by_body = (
        rf"(?!(?:{_STATEMENTS})\M)(?:[\w<>\[\],.?&*:~]+[ \t]+){{0,8}}"
        rf"{name}[ \t]*\([^()\n;]*\)[^(){{}};\n]*\{{$"
    )
    return rf"(?n)^[ \t]*(?:{before}(?:{by_keyword}|{by_value})|{by_body})"

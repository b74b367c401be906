"""Questions that are names: the chunks that define them, and files of that name, come first.

The question ``TypeAdapter`` is for its definition, but chunks that mention the name often have
higher scores. Figures in docs/explanation/decisions/fusion.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from processors.answering.adjustments import is_test
from store.search.keyword.tokenizer import STOP_WORDS, defined_names
from store.types import NamedChunk

__all__ = ["DEFINITION_BONUS", "FILE_BONUS", "Name", "Promotion", "names_in", "promotions"]

MAX_NAMES = 4
"""A question of more names is searched as a text."""

DEFINITION_BONUS = 0.2
"""Added to the score of a chunk that defines the name, in cosine."""

FILE_BONUS = 0.2
"""Added to the score of each chunk of the file that is named so, in cosine."""

_LESS = 0.5
"""Factor for another case, another qualifier, a later part of the definition, and tests."""

_DECLARED = 0.75
"""Factor for a declaration or a stub beside the definition itself."""

_NAME = re.compile(
    r"""['"`]?
    (?:(?:class|enum|interface|struct|trait|type)[ ](?=\w*[A-Z_])|(?:def|fn|func|function)[ ])?
    (?P<path>@?[^\W\d]\w*(?:(?:\.|::|\#|->)[^\W\d]\w*)*)
    (?P<call>\([^()]*\))?
    ['"`]?\??""",
    re.VERBOSE,
)
_IN_CODE = re.compile(r"[A-Z_]|\w(?:\.|::|#|->)\w|\)$")
_JOINT = re.compile(r"\.|::|#|->")
_DECLARING = (".d.ts", ".h", ".hh", ".hpp", ".hxx", ".pyi")
_OVERLOAD = re.compile(r"^[ \t]*@(?:typing\.)?overload\b", re.MULTILINE)
_STEMS_OF_FOLDERS = frozenset(("__init__", "index", "mod"))


@dataclass(frozen=True, slots=True)
class Name:
    """A name with its qualifiers, outermost first: ``Foo`` and ``bar`` of ``Foo.bar()``."""

    qualifiers: tuple[str, ...]
    last: str

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names of which a definition may be wanted: the last, and the one before it."""
        return (self.last, *self.qualifiers[-1:])


@dataclass(frozen=True, slots=True)
class Promotion:
    """An addition to the score of a chunk, in cosine. ``defines``: the name that it defines."""

    bonus: float
    defines: str | None


def names_in(question: str) -> tuple[Name, ...]:
    """Return the names that a question consists of; empty if it has anything else.

    A name may stand in quotes or brackets, behind a keyword such as ``class``, or before a call's
    brackets. A single plain word may be a topic as well: if nothing defines it, nothing changes. Of
    several names, each must have a capital, an underscore, a qualifier or a call's brackets.
    """
    text = question.strip()
    name = _name(text)
    if name is not None:
        return (name,)
    words = text.split()
    names = [_name(word) for word in words if _IN_CODE.search(word)][: MAX_NAMES + 1]
    if not 1 < len(words) == len(names) <= MAX_NAMES:
        return ()
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _name(text: str) -> Name | None:
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    *qualifiers, last = _JOINT.split(match["path"].removeprefix("@"))
    if len(last) < 2 or last in STOP_WORDS:
        return None
    return Name(tuple(qualifiers), last)


def promotions(names: Sequence[Name], chunks: Mapping[int, NamedChunk]) -> dict[int, Promotion]:
    """Return the promotions of the chunks that define a name or are in the file of that name.

    Of several names, each counts for its share.

    An implementation comes before a test and before a declaration, the beginning of a definition
    before its other parts, the exact case before another one, and with qualifiers (``Foo.bar``) the
    definition in them before others. If nothing defines ``bar`` of ``Foo.bar``, it is ``Foo``.
    """
    bonuses: defaultdict[int, float] = defaultdict(float)
    defined: defaultdict[int, list[str]] = defaultdict(list)
    for name in names:
        for chunk_id, promotion in _promotions_or_owner(name, chunks).items():
            bonuses[chunk_id] += promotion.bonus / len(names)
            defined[chunk_id] += [promotion.defines] if promotion.defines else []
    return {
        chunk_id: Promotion(bonus, ", ".join(dict.fromkeys(defined[chunk_id])) or None)
        for chunk_id, bonus in bonuses.items()
    }


def _promotions_or_owner(name: Name, chunks: Mapping[int, NamedChunk]) -> dict[int, Promotion]:
    promoted = _promotions(name, chunks)
    is_defined = any(promotion.defines for promotion in promoted.values())
    if is_defined or not name.qualifiers:
        return promoted
    return _promotions(Name(name.qualifiers[:-1], name.qualifiers[-1]), chunks)


def _promotions(name: Name, chunks: Mapping[int, NamedChunk]) -> dict[int, Promotion]:
    parts = _later_parts(chunks)
    promoted: dict[int, Promotion] = {}
    for chunk_id, chunk in chunks.items():
        defined = _defined(name, chunk)
        factor = _factor(name, chunk, defined, is_later=chunk_id in parts) if defined else 0.0
        bonus = DEFINITION_BONUS * factor + FILE_BONUS * _is_file_of(name, chunk.uri)
        if bonus:
            promoted[chunk_id] = Promotion(bonus, defined or None)
    return promoted


def _defined(name: Name, chunk: NamedChunk) -> str:
    """The name as the chunk defines it, in the same case if possible; '' if it does not."""
    if chunk.kind != "code" or chunk.content is None:
        return ""
    names = defined_names(chunk.symbol, chunk.content)
    if name.last in names:
        return name.last
    return next((other for other in sorted(names) if other.lower() == name.last.lower()), "")


def _later_parts(chunks: Mapping[int, NamedChunk]) -> set[int]:
    """Ids of the chunks of a definition that is cut, except for the first of each."""
    units: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for chunk_id, chunk in chunks.items():
        if chunk.content is not None and chunk.symbol is not None:
            lines = units.setdefault((chunk.uri, chunk.symbol), [])
            lines.append((chunk.start_line, chunk_id))
    return {chunk_id for lines in units.values() for _, chunk_id in sorted(lines)[1:]}


def _factor(name: Name, chunk: NamedChunk, defined: str, *, is_later: bool) -> float:
    factor = 1.0 if defined == name.last else _LESS
    if is_later:
        factor *= _LESS
    if name.qualifiers and not _is_qualified(name.qualifiers[-1], chunk):
        factor *= _LESS
    if _is_beside_code(chunk.uri) and not is_test(name.last):
        factor *= _LESS
    if chunk.uri.endswith(_DECLARING) or _OVERLOAD.search(chunk.content or ""):
        factor *= _DECLARED
    return factor


def _is_qualified(qualifier: str, chunk: NamedChunk) -> bool:
    """Return whether a class, module or folder of this name contains the chunk, in any case."""
    owners = re.split(r"\W+", f"{chunk.symbol or ''} {chunk.uri}".lower())
    return qualifier.lower() in owners


def _is_beside_code(uri: str) -> bool:
    return is_test(uri) or "docs" in PurePosixPath(uri).parts[:-1]


def _is_file_of(name: Name, uri: str) -> bool:
    """Return whether the file, or the folder of an ``__init__``, has this name, case and all."""
    path = PurePosixPath(uri)
    stem = path.parent.name if path.stem in _STEMS_OF_FOLDERS else path.stem
    return stem == name.last

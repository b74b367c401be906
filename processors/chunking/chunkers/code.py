"""Chunker of source code: cuts by syntax tree, or by indentation if no grammar fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tree_sitter import Tree

from processors.chunking.chunkers.grammars import GRAMMARS, parse
from processors.chunking.chunkers.syntax import StatementDepths, units_of
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Outline, Unit, one_by_one
from processors.chunking.packing.packer import Piece, pack
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["chunk_code"]

_DEEPEST = 400
_TAB_COLUMNS = 4
_CLOSERS = (")", "]", "}", "</", "end", "fi", "done", "esac")
_LONGEST_SYMBOL = 200
_SINCE_VERSION_2 = frozenset(
    ("dart", "dockerfile", "elixir", "hcl", "kotlin", "lua", "objc", "scala", "sql", "swift")
)
"""Languages that version 1 cuts by indentation."""

_FEWEST_LINES = 4
"""Lines that a chunk keeps beside its definition."""


def chunk_code(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into functions and classes; over the limit, classes by method, functions by statement.

    A chunk's symbol is the qualified name of the unit that it contains (several are listed), or
    that contains it. A text with syntax errors is cut by its readable parts, and fully covered.
    """
    lines = Lines(source.text, count)
    fewest_lines = _FEWEST_LINES if source.version > 1 else 1
    is_known = source.language in GRAMMARS and (
        source.version > 1 or source.language not in _SINCE_VERSION_2
    )
    tree = parse(source.language, source.text) if is_known and source.language else None
    if tree is None or source.language is None:
        units, ranks = [Unit(0, len(lines))], _by_indentation(lines)
        outline = Outline(units, ranks, fewest_lines=fewest_lines)
        return [chunk for chunk, _ in pack(source, lines, outline, limit_tokens)]
    grammar = GRAMMARS[source.language]
    units = units_of(tree.root_node, 0, len(lines), grammar)
    outline = Outline(units, _by_syntax(tree, lines), fewest_lines=fewest_lines)
    packed = pack(source, lines, outline, limit_tokens)
    return [chunk._replace(symbol=_symbol(piece, grammar.separator)) for chunk, piece in packed]


def _by_indentation(lines: Lines) -> Callable[[Sequence[int]], Sequence[int]]:
    """Rank rows: less indentation is better, then a blank line before; never cut at a closer."""
    return one_by_one(partial(_indentation_rank, lines))


def _indentation_rank(lines: Lines, row: int) -> int:
    line = lines.texts[row]
    text = line.lstrip()
    if lines.blank[row] or text.startswith(_CLOSERS):
        return 0
    indent = line[: len(line) - len(text)]
    depth = len(indent) + (_TAB_COLUMNS - 1) * indent.count("\t")
    return _rank(lines, row, depth)


def _rank(lines: Lines, row: int, depth: int) -> int:
    return 3 * (1 + _DEEPEST - min(depth, _DEEPEST)) + lines.blanks_before(row)


def _by_syntax(tree: Tree, lines: Lines) -> Callable[[Sequence[int]], Sequence[int]]:
    depths = StatementDepths(tree.root_node)

    def ranks(rows: Sequence[int]) -> Sequence[int]:
        by_row = depths.of(rows[0], rows[-1] + 1)
        return [
            lines.blanks_before(row, 1) if row not in by_row else _rank(lines, row, by_row[row])
            for row in rows
        ]

    return ranks


def _symbol(piece: Piece, separator: str) -> str | None:
    """Symbol: ``Foo.bar`` for a unit, ``Foo.bar, Foo.baz`` for several, ``Foo`` for the rest."""
    owner = separator.join(unit.name for unit in piece.owners)
    names = [separator.join(filter(None, (owner, unit.name))) for unit in piece.inside] or [owner]
    symbol, *others = dict.fromkeys(names)
    for name in others:
        if len(symbol) + len(name) > _LONGEST_SYMBOL:
            break
        symbol += f", {name}"
    return symbol[:_LONGEST_SYMBOL] or None

"""Units and ranks of rows from a syntax tree, read without recursion, as trees may be deep."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from tree_sitter import Node

from processors.chunking.chunkers.grammars import Grammar
from processors.chunking.packing.outline import Unit

__all__ = ["StatementDepths", "units_of"]

_LEADING = frozenset(
    {
        *("comment", "line_comment", "block_comment", "multiline_comment", "documentation_comment"),
        *("marginalia", "attribute_item", "decorator"),
    }
)
_FUNCTION_VALUES = frozenset(
    {
        *("arrow_function", "function_expression", "generator_function", "class", "function"),
        "function_definition",
    }
)
_LONGEST_CHAIN = 12


def units_of(parent: Node, start: int, end: int, grammar: Grammar) -> list[Unit]:
    """Units for the rows ``start..end`` of ``parent``: its definitions, and the rows between them.

    Comments, attributes and decorators right above a definition belong to it. Definitions that
    share a row are one unit.
    """
    units: list[Unit] = []
    row = start
    for unit in _definitions(parent, grammar):
        first, last = max(unit.start, row), min(unit.end, end)
        if first >= last:
            continue
        if first > row:
            units.append(Unit(row, first))
        units.append(Unit(first, last, unit.name, unit.label, unit.expand))
        row = last
    if row < end:
        units.append(Unit(row, end))
    return units


def _definitions(parent: Node, grammar: Grammar) -> Iterator[Unit]:
    lead: tuple[int, int] | None = None
    previous_end = -1
    definition: _Definition | None = None
    for node in _flat_children(parent, grammar):
        start, end = _rows(node)
        if node.type in _LEADING or node.type in grammar.leading:
            joined = lead is not None and lead[1] >= start
            if start >= previous_end:
                lead = (lead[0] if joined and lead else start, end)
            continue
        inner = _definition(node, grammar)
        if definition is not None and inner is None and definition.reaches(node, grammar):
            definition = definition._replace(end=end)
        else:
            if definition is not None:
                yield _unit(definition, grammar)
            attached = lead is not None and lead[1] >= start
            first = lead[0] if attached and lead else start
            definition = None if inner is None else _Definition(inner, first, end)
        lead, previous_end = None, end
    if definition is not None:
        yield _unit(definition, grammar)


class _Definition(NamedTuple):
    """A definition and its rows, with what leads to it and what follows it."""

    node: Node
    start: int
    end: int

    def reaches(self, node: Node, grammar: Grammar) -> bool:
        """Return whether it goes on with ``node``, the next one."""
        return node.type in grammar.tails or self.node.type in grammar.sections


def _flat_children(parent: Node, grammar: Grammar) -> Iterator[Node]:
    pending = list(reversed(parent.children))
    while pending:
        node = pending.pop()
        if node.type in grammar.bodies or node.is_error:
            pending.extend(reversed(node.children))
        else:
            yield node


def _definition(node: Node, grammar: Grammar) -> Node | None:
    """Return the definition that ``node`` is, binds or wraps, or None."""
    for _ in range(_LONGEST_CHAIN):
        kind = grammar.type_of(node)
        if kind in grammar.functions or kind in grammar.containers:
            return node
        if kind in grammar.bindings and _binds_function(node):
            return node
        if kind in grammar.properties and node.end_point.row > node.start_point.row:
            return node
        if kind not in grammar.wrappers or not node.named_children:
            return None
        node = node.child_by_field_name("declaration") or _wrapped(node, grammar)
    return None


def _wrapped(node: Node, grammar: Grammar) -> Node:
    """Return the last child that is a function, else the last one."""
    functions = [child for child in node.named_children if child.type in grammar.functions]
    return (functions or node.named_children)[-1]


def _binds_function(node: Node) -> bool:
    bound = node.named_child(0) if node.named_child_count else None
    if bound is not None and bound.type == "assignment_statement":
        node = bound
    if node.type == "assignment_statement":
        bound = node.named_children[-1]
    if bound is None:
        return False
    value = bound.child_by_field_name("value") or bound.child_by_field_name("right")
    return value is not None and value.type in _FUNCTION_VALUES


def _unit(definition: _Definition, grammar: Grammar) -> Unit:
    node, start, end = definition
    is_container = grammar.type_of(node) in grammar.containers
    expand = partial(units_of, node, start, end, grammar) if is_container else None
    name = grammar.name_of(node)
    return Unit(start, end, name, name, expand)


def _rows(node: Node) -> tuple[int, int]:
    """Rows of a node, half open; a node that ends with its line excludes the next row."""
    start, end = node.start_point, node.end_point
    if end.column == 0 and end.row > start.row:
        return start.row, end.row
    return start.row, end.row + 1


class StatementDepths:
    """Rows that start a node other than a closing bracket, with the depth of the outermost one.

    Only the requested rows of a tree are visited, and nodes of a single row are not entered, so
    that only a small part of most trees is visited.
    """

    def __init__(self, root: Node) -> None:
        self._depths: dict[int, int] = {}
        first, end = _rows(root)
        self._unvisited = [_Part(first, end - 1, 0, root)]

    def of(self, start: int, end: int) -> Mapping[int, int]:
        """Return depths by row, for all of ``start..end`` and possibly other rows."""
        low = bisect_left(self._unvisited, start, key=attrgetter("last"))
        high = bisect_left(self._unvisited, end, key=attrgetter("first"))
        pending = self._unvisited[low:high]
        outside: list[_Part] = []
        while pending:
            for part in self._visit(pending.pop()):
                inside = part.first < end and part.last >= start
                (pending if inside else outside).append(part)
        self._unvisited[low:high] = sorted(outside, key=attrgetter("first"))
        return self._depths

    def _visit(self, parent: _Part) -> Iterator[_Part]:
        """Record where the children start, and yield those of several rows."""
        depths, depth = self._depths, parent.depth
        row_before, after_comment = -1, False
        for child in parent.node.children:
            first = child.start_point.row
            last, column = child.end_point
            if column == 0 and last > first:
                last -= 1
            named = child.is_named
            if named and first > row_before:
                attached = after_comment and first == row_before + 1
                if not attached and depths.get(first, depth) >= depth:
                    depths[first] = depth
            if last > first:
                yield _Part(first, last, depth + 1, child)
            row_before, after_comment = last, named and child.type in _LEADING


class _Part(NamedTuple):
    """An unvisited node, its first and last row, and the depth of its children."""

    first: int
    last: int
    depth: int
    node: Node

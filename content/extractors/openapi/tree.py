"""Tree of a JSON or YAML file, with the lines of its mappings in the file.

Scalars are None, booleans and strings: numbers stay as written, and so do dates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.errors import Damaged, LimitExceeded

__all__ = ["Tree", "read"]

MOST_NODES = 300_000
MOST_DEPTH = 200
_DEPTH_WITH_LINES = 10
"""Depth of the operations of callbacks; no mapping below it is ever cited."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\],:"]+|"', re.DOTALL)
_LITERALS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_PLAIN: Mapping[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""Plain scalars of YAML 1.2 that are not strings; ``yes`` and ``on`` are strings there."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Value of a file, made of dicts, lists, strings, booleans and None."""

    root: object
    spans: Mapping[int, tuple[int, int]]
    """First and last line of a mapping, from 1, by its identity; the line of its key counts."""

    def lines(self, value: object) -> tuple[int, int] | None:
        """Return the first and the last line of a mapping, or None for other values."""
        return self.spans.get(id(value))


def read(text: str) -> Tree:
    """Read JSON, or else YAML.

    Raises:
        Damaged: the text is neither.
        LimitExceeded: it has more than 300,000 values, or is nested over 200 levels deep.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _read_json(text)
        except (Damaged, ValueError):
            pass  # flow style of YAML begins alike
    return _read_yaml(text)


@dataclass(slots=True)
class _Frame:
    """A collection that is being read."""

    value: dict[str, object] | list[object]
    first_line: int
    anchor: str | None = None
    key: str | None = None
    key_line: int = 0


class _Builder:
    """Builds a tree from its parts, in the order of the file."""

    def __init__(self) -> None:
        self.spans: dict[int, tuple[int, int]] = {}
        self.last_line = 1
        self._roots: list[object] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, object] = {}
        self._nodes = 0

    def tree(self) -> Tree:
        if self._stack or not self._roots:
            raise _damaged("it ends too early")
        return Tree(self._roots[0], self.spans)

    def open(
        self, value: dict[str, object] | list[object], line: int, anchor: str | None = None
    ) -> None:
        frame = self._stack[-1] if self._stack else None
        first = frame.key_line if frame and frame.key is not None else line
        self._add(value)
        self._stack.append(_Frame(value, first, anchor))
        if len(self._stack) > MOST_DEPTH:
            raise LimitExceeded(
                f"the description is nested over {MOST_DEPTH} levels deep", "make it flatter"
            )

    def close(self) -> None:
        if not self._stack:
            raise _damaged("it closes more than it opens")
        frame = self._stack.pop()
        if isinstance(frame.value, dict):
            self._merge(frame.value)
            if len(self._stack) < _DEPTH_WITH_LINES:
                self.spans[id(frame.value)] = (frame.first_line, self.last_line)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.value

    def scalar(self, text: str, value: object, line: int, anchor: str | None = None) -> None:
        """Add a scalar; ``text`` counts where it is a key, else ``value``."""
        frame = self._stack[-1] if self._stack else None
        if frame and isinstance(frame.value, dict) and frame.key is None:
            frame.key, frame.key_line = text, line
        else:
            self._add(value)
        if anchor is not None:
            self._anchors[anchor] = value

    def alias(self, anchor: str) -> None:
        # an anchor counts once its collection is complete, so that no value contains itself
        if anchor not in self._anchors:
            raise _damaged("an alias stands before its anchor, or inside it")
        self._add(self._anchors[anchor])

    def _add(self, value: object) -> None:
        self._count(1)
        if not self._stack:
            self._roots.append(value)
            return
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is None:
            raise _damaged("a key is not a scalar")
        else:
            frame.value[frame.key] = value
            frame.key = None

    def _merge(self, value: dict[str, object]) -> None:
        """Fill in the keys of ``<<``, which never replace the mapping's own."""
        merged = value.get("<<")
        for source in merged if isinstance(merged, list) else [merged]:
            if isinstance(source, dict):
                self._count(len(source))
                for key, inherited in source.items():
                    value.setdefault(key, inherited)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise LimitExceeded(
                f"the description has more than {MOST_NODES:,} values",
                "split it into descriptions of fewer paths",
            )


def _read_json(text: str) -> Tree:
    builder = _Builder()
    counted = 0
    line = 1
    for match in _TOKEN.finditer(text):
        part = match[0]
        line += text.count("\n", counted, match.start())
        counted = match.start()
        builder.last_line = line
        if part == "{":
            builder.open({}, line)
        elif part == "[":
            builder.open([], line)
        elif part in ("}", "]"):
            builder.close()
        elif part[0] != '"':
            builder.scalar(part, _LITERALS.get(part, part), line)
        elif part == '"':
            raise _damaged("a string does not end")
        else:
            string = str(json.loads(part)) if "\\" in part else part[1:-1]
            builder.scalar(string, string, line)
    tree = builder.tree()
    # the loop above is bounded and skips commas and colons; the strict parser is the reverse
    json.loads(text, parse_int=str, parse_float=str)
    return tree


def _read_yaml(text: str) -> Tree:
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - for the first YAML only

    builder = _Builder()
    file_lines = text.split("\n")
    # events, not the composed nodes: they are counted before they are kept
    loader = yaml.CSafeLoader(text)
    flows: list[bool] = []
    try:
        while loader.check_event():
            event = loader.get_event()
            first, last = event.start_mark.line + 1, event.end_mark.line + 1
            if isinstance(event, yaml.ScalarEvent):
                if event.style in ("|", ">"):
                    # a block's end is the start of whatever follows, after blank lines
                    last -= 1
                    while last > first and not file_lines[last - 1].strip():
                        last -= 1
                builder.last_line = last
                plain = not event.style and event.implicit[0]
                value = _PLAIN.get(event.value, event.value) if plain else event.value
                builder.scalar(event.value, value, first, event.anchor)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                flows.append(bool(event.flow_style))
                mapping = isinstance(event, yaml.MappingStartEvent)
                builder.open({} if mapping else [], first, event.anchor)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                if flows.pop():
                    builder.last_line = last
                builder.close()
            elif isinstance(event, yaml.AliasEvent):
                builder.last_line = last
                builder.alias(event.anchor)
            elif isinstance(event, yaml.DocumentEndEvent):
                break
    except yaml.YAMLError as error:
        raise _damaged("it is not valid YAML or JSON") from error
    finally:
        loader.dispose()
    return builder.tree()


def _damaged(reason: str) -> Damaged:
    return Damaged(f"the description can't be read: {reason}", "check it with a linter of OpenAPI")

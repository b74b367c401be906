"""Walk over the elements of a page that appends Markdown to a draft."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from selectolax.lexbor import LexborNode

from content.extractors.draft import Draft, fence_mark
from content.extractors.html.inline import DROPPED_TAGS, inline_text, is_note, phrase
from content.extractors.html.tables import caption_of, data_rows
from content.rendition import Place

__all__ = ["PlaceOf", "Walk"]

PlaceOf = Callable[[str, tuple[str, ...]], Place]
"""Place below a heading or term, by its id ('' without one) and the headings above, outer first."""

MOST_DEPTH = 200
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form header hgroup hr legend li main menu nav ol optgroup p pre "
    "search section summary table tbody td tfoot th thead tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_LINE_BREAK = "\x1e"
_AROUND_BREAK = re.compile(rf"\s*{_LINE_BREAK}\s*")
_LIKE_MARKDOWN = re.compile(r"(?:#{1,6}(?=\s|$)|```|~~~|\|)")
"""Start of a line of prose that would be a heading, a fence or a table in Markdown."""
_LANGUAGE = re.compile(
    r"(?:^|[\s_-])(?:(?:language|lang|highlight-source|highlight-text|highlight)[-:]"
    r"|brush:\s?|sourceCode )([\w+#.-]{1,40})",
    re.IGNORECASE,
)
_NO_LANGUAGE = frozenset({"default", "highlight", "none", "notranslate", "text", "plain"})
_START_LEVELS = 5


class _Indent:
    """Prefix of the lines in a list item or in a quote."""

    __slots__ = ("first", "other", "used")

    def __init__(self, first: str, other: str) -> None:
        self.first = first
        self.other = other
        self.used = False

    def taken(self) -> str:
        """Return the prefix of the next line."""
        prefix = self.other if self.used else self.first
        self.used = True
        return prefix


class _List:
    """Open list; ``number`` is that of the next item, or None without numbers."""

    __slots__ = ("number",)

    def __init__(self, number: int | None) -> None:
        self.number = number

    def mark(self) -> str:
        """Return the mark of the next item."""
        if self.number is None:
            return "- "
        self.number += 1
        return f"{self.number - 1}. "


class Walk:
    """Markdown of elements: prose, headings, lists, quotes, tables and code.

    The walk does not recurse, so it takes trees of any depth; below 200 levels it reads text only.

    Args:
        draft: draft that receives the lines.
        place_of: place of the lines below a heading or a term.
        dropped: ``mem_id`` of the elements to leave out.
        shift: added to the level of every heading.
        small_tables: read tables with a single column as data too.
    """

    def __init__(
        self,
        draft: Draft,
        place_of: PlaceOf,
        dropped: Collection[int] = (),
        *,
        shift: int = 0,
        small_tables: bool = False,
    ) -> None:
        self._draft = draft
        self._place_of = place_of
        self._dropped = dropped
        self._shift = shift
        self._small_tables = small_tables
        self._path: list[tuple[int, str]] = []
        self._identifier = ""
        self._place = place_of("", ())
        self._buffer: list[str] = []
        self._indents: list[_Indent] = []
        self._lists: list[_List] = []

    def run(self, root: LexborNode) -> None:
        """Append ``root`` and its content.

        Raises:
            LimitExceeded: the rendition would exceed 8 MiB, or a table 200,000 cells.
        """
        ancestors: list[tuple[LexborNode, str]] = []
        node: LexborNode | None = root
        while node is not None:
            tag = node.tag or ""
            if tag == "-text":
                self._buffer.append(node.text_content or "")
            elif self._enter(node, tag, len(ancestors)):
                child = node.child
                if child is not None:
                    ancestors.append((node, tag))
                    node = child
                    continue
                self._leave(tag)
            following = node.next if ancestors else None
            while following is None and ancestors:
                node, tag = ancestors.pop()
                self._leave(tag)
                following = node.next if ancestors else None
            node = following
        self._flush()
        self._draft.gap()

    def _enter(self, node: LexborNode, tag: str, depth: int) -> bool:
        """Append what precedes the children. Returns False if the children are not to be read."""
        if tag in DROPPED_TAGS or tag[:1] in "-_!" or node.mem_id in self._dropped:
            return False
        if tag not in _BLOCKS and tag not in _HEADINGS:
            return self._enter_inline(node, tag)
        self._flush()
        if depth >= MOST_DEPTH:
            self._buffer.append(node.text(deep=True))
            self._flush()
            return False
        return self._enter_block(node, tag)

    def _enter_inline(self, node: LexborNode, tag: str) -> bool:
        if tag == "br":
            self._buffer.append(_LINE_BREAK)
            return False
        text = phrase(node, tag)
        if text is None:
            return True
        self._buffer.append(text)
        return False

    def _enter_block(self, node: LexborNode, tag: str) -> bool:
        if tag in _HEADINGS:
            self._put_heading(node, _HEADINGS[tag])
        elif tag == "pre":
            self._put_code(node)
        elif tag == "dt":
            self._put_term(node)
        elif tag == "hr":
            self._draft.gap()
        elif tag == "table":
            return not self._put_table(node)
        else:
            self._open(node, tag)
            return True
        return False

    def _open(self, node: LexborNode, tag: str) -> None:
        """Begin a list, an item or a quote."""
        if tag in {"ul", "ol", "menu"}:
            if not self._lists:
                self._draft.gap()
            self._lists.append(_List(_start(node) if tag == "ol" else None))
        elif tag == "li":
            mark = self._lists[-1].mark() if self._lists else "- "
            self._indents.append(_Indent(mark, " " * len(mark)))
        elif tag == "blockquote":
            self._draft.gap()
            self._indents.append(_Indent("> ", "> "))

    def _leave(self, tag: str) -> None:
        if tag not in _BLOCKS:
            return
        self._flush()
        if tag in {"ul", "ol", "menu"} and self._lists:
            self._lists.pop()
            if not self._lists:
                self._draft.gap()
        elif tag in {"li", "blockquote"} and self._indents:
            self._indents.pop()
            if tag == "blockquote":
                self._draft.gap()

    def _flush(self) -> None:
        """Append the collected text as a paragraph."""
        if not self._buffer:
            return
        text = "".join(self._buffer)
        self._buffer.clear()
        if not text or text.isspace():
            return
        if _LINE_BREAK in text:
            text = _AROUND_BREAK.sub(_LINE_BREAK, text).strip(_LINE_BREAK)
        lines = [" ".join(line.split()) for line in text.split(_LINE_BREAK)]
        # no blank line separates an item from the one before
        if not self._indents or self._indents[-1].used:
            self._draft.gap()
        for line in lines:
            self._put_line(f"\\{line}" if _LIKE_MARKDOWN.match(line) else line)
        if not self._lists:
            self._draft.gap()

    def _put_line(self, line: str) -> None:
        if self._indents:
            prefix = "".join([indent.taken() for indent in self._indents])
            line = (prefix + line).rstrip()
        self._draft.put(line, self._place)

    def _put_heading(self, node: LexborNode, level: int) -> None:
        name = inline_text(node, self._dropped, marked=False)
        if not name:
            return
        # a heading structures the page even in a list or a quote, which therefore end here
        for indent in self._indents:
            indent.first = indent.other = ""
            indent.used = True
        level = max(1, level + self._shift)
        if is_note(node.parent):
            # the text after a note belongs to the section around it, so its heading begins none
            self._draft.block(f"{'#' * min(level, 6)} {name}", self._place)
            return
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        self._path.append((level, name))
        self._move_to(_identifier(node) or _identifier_before(node))
        self._draft.heading(level, name, self._place)

    def _put_term(self, node: LexborNode) -> None:
        self._move_to(_identifier(node))
        name = inline_text(node, self._dropped, marked=False)
        if name:
            self._draft.gap()
            self._put_line(name)
            self._draft.gap()

    def _move_to(self, identifier: str) -> None:
        """Change the place of the lines that follow; without an id, the one above stays."""
        self._identifier = identifier or self._identifier
        self._place = self._place_of(self._identifier, tuple(name for _, name in self._path))

    def _put_code(self, node: LexborNode) -> None:
        """Append a fence. It has no indent, so that its lines are those of the page."""
        text = _verbatim(node, self._dropped).strip("\n")
        if text.strip():
            mark = fence_mark(text)
            self._draft.block(f"{mark}{_code_language(node)}\n{text}\n{mark}", self._place)

    def _put_table(self, node: LexborNode) -> bool:
        """Append a table of data, without indent. Returns False for a layout."""
        rows = data_rows(node, self._dropped, small=self._small_tables)
        if rows is None:
            return False
        self._draft.gap()
        caption = caption_of(node, self._dropped)
        if caption:
            self._draft.put(caption, self._place)
            self._draft.gap()
        for number, row in enumerate(rows):
            self._draft.put(f"| {' | '.join(row)} |", self._place)
            if number == 0:
                self._draft.put(f"|{'---|' * len(row)}", self._place)
        self._draft.gap()
        return True


def _start(node: LexborNode) -> int:
    """First number of an ordered list."""
    start = node.attributes.get("start") or "1"
    return int(start) if re.fullmatch(r"\d{1,9}", start) else 1


def _identifier(node: LexborNode) -> str:
    """Return the id of an element, or of an anchor inside it. Returns '' without one."""
    attributes = node.attributes
    if attributes.get("id"):
        return attributes["id"] or ""
    inner = node.css_first("[id], a[name]")
    if inner is None:
        return ""
    return inner.attributes.get("id") or inner.attributes.get("name") or ""


def _identifier_before(node: LexborNode) -> str:
    """Return the id of an element that begins with ``node``, or of an empty anchor before it."""
    for _ in range(_START_LEVELS):
        before = _previous_element(node)
        if before is not None:
            is_anchor = before.tag in {"a", "span"} and not before.text(deep=True).strip()
            return _identifier(before) if is_anchor else ""
        parent = node.parent
        if parent is None or parent.tag in {"body", "main", "html"}:
            return ""
        if parent.attributes.get("id"):
            return parent.attributes["id"] or ""
        node = parent
    return ""


def _previous_element(node: LexborNode) -> LexborNode | None:
    """Return the element before ``node`` below its parent. Returns None for the first one."""
    previous = node.prev
    while previous is not None and (previous.tag or "")[:1] in "-_!":
        previous = previous.prev
    return previous


def _code_language(node: LexborNode) -> str:
    """Return the language that an element of code, or one around or in it, has in its class."""
    parent = node.parent
    around = (node, parent, parent.parent if parent is not None else None, node.css_first("code"))
    for element in around:
        if element is None:
            continue
        attributes = element.attributes
        explicit = attributes.get("data-lang") or attributes.get("data-language")
        match = _LANGUAGE.search(attributes.get("class") or "")
        language = explicit or (match[1] if match else "")
        if language and language.lower() not in _NO_LANGUAGE:
            return re.sub(r"[^\w+#.-]", "", language)[:40]
    return ""


def _verbatim(node: LexborNode, dropped: Collection[int]) -> str:
    """Text with its white space, and with line breaks for ``br``."""
    if node.css_first("br, script, style") is None and not dropped:
        return node.text(deep=True)
    parts: list[str] = []
    ancestors: list[LexborNode] = []
    current: LexborNode | None = node.child
    while current is not None:
        tag = current.tag or ""
        child = None
        if tag == "-text":
            parts.append(current.text_content or "")
        elif tag == "br":
            parts.append("\n")
        elif tag not in DROPPED_TAGS and current.mem_id not in dropped:
            child = current.child
        if child is not None:
            ancestors.append(current)
            current = child
            continue
        following = current.next
        while following is None and ancestors:
            following = ancestors.pop().next
        current = following
    return "".join(parts)

"""Code examples of documents: chunks of code with the text around it, for a search of their own.

An example repeats code that the chunks of the text hold too. It is a block of code in prose: a
fence, or a literal block of reStructuredText. Documents that are code as a whole have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from content.rendition import Rendition
from processors.chunking.chunkers.markdown import Markdown
from processors.chunking.chunkers.prose import Heading
from processors.chunking.chunkers.rendition import headings_of, located
from processors.chunking.chunkers.rst import CodeBlock, rst_blocks, rst_headings
from processors.chunking.packing.headers import Headers, one_line
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import SIZES
from processors.chunking.packing.splitter import Bounds, split, strength
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["FEWEST_LINES", "SURROUNDING_TOKENS", "examples_of_rendition", "examples_of_text"]

FEWEST_LINES = 3
"""Lines of code, without blank ones, that a block needs to be an example."""

SURROUNDING_TOKENS = 60
"""Most tokens of the paragraph before an example, and of the first sentence after it."""

_SHARE_OF_SURROUNDINGS = 4
"""Each of the two gets at most a quarter of the tokens that the header leaves."""

_MARGIN = 20
"""A twentieth of the room is kept free for the ends of lines, which may be tokens."""

_KINDS_OF_DATA = frozenset({"openapi", "sheet"})
"""Their fences hold schemas and values."""

_FENCE_MARKS = ("```", "~~~")
_INFO = re.compile(r"\s*[`~]{3,}\s*(?:\{[.]?(?P<braces>[^}\s,]*+)[^}]*+\})?\s*(?P<word>[\w+#.-]*)")
_NOT_CODE = frozenset({"text", "txt", "plain", "plaintext", "output"})
_CODE_DIRECTIVES = frozenset({"code", "code-block", "code-cell", "sourcecode"})
_PROSE_DIRECTIVES = frozenset(
    (
        *("admonition", "attention", "card", "caution", "contents", "danger", "dropdown", "error"),
        *("eval-rst", "figure", "grid", "hint", "image", "important", "include", "list-table"),
        *("math", "note", "seealso", "tab-item", "tab-set", "table", "tip", "toctree", "warning"),
    )
)
"""Directives of MyST, which are fences around prose."""

_PROMPTS = ((">>> ", "python"), ("$ ", "shell"))
_NO_WORDS = re.compile(r"\W*$")
_NOT_PROSE = ("|", "<!--", ".. ", *_FENCE_MARKS)
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")


@dataclass(frozen=True, slots=True)
class _Prose:
    """The lines of a document, its headings in order, and its blocks of code in order."""

    lines: Sequence[str]
    headings: Sequence[Heading]
    blocks: Sequence[CodeBlock]


def examples_of_text(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Examples of a document of Markdown or reStructuredText, in order; other texts have none."""
    read = _READERS.get(source.kind)
    if read is None:
        return []
    return list(_examples(read(source), source.title, limit_tokens, count))


def examples_of_rendition(
    source: Source, rendition: Rendition, limit_tokens: int, count: CountTokens
) -> list[Chunk]:
    """Examples of an extracted document, in order, with their places in the original."""
    text = "\n".join(rendition.lines)
    if source.kind in _KINDS_OF_DATA or not _has_fence(text):
        return []
    lines = Lines(text, _uncounted)
    prose = _Prose(
        rendition.lines, headings_of(rendition), list(_fenced(Markdown(source, lines), lines))
    )
    examples = _examples(prose, source.title or rendition.title, limit_tokens, count)
    return [located(rendition, example) for example in examples]


def _read_markdown(source: Source) -> _Prose:
    if not _has_fence(source.text):
        return _Prose((), (), ())
    lines = Lines(source.text, _uncounted)
    markdown = Markdown(source, lines)
    return _Prose(lines.texts, list(markdown.headings()), list(_fenced(markdown, lines)))


def _read_rst(source: Source) -> _Prose:
    lines = Lines(source.text, _uncounted)
    return _Prose(lines.texts, list(rst_headings(lines)), list(rst_blocks(lines)))


_READERS: dict[str, Callable[[Source], _Prose]] = {"markdown": _read_markdown, "rst": _read_rst}


def _uncounted(texts: Sequence[str]) -> list[int]:
    """Stand-in for token counts, which the search for blocks does not need."""
    return [0] * len(texts)


def _has_fence(text: str) -> bool:
    return any(mark in text for mark in _FENCE_MARKS)


def _fenced(markdown: Markdown, lines: Lines) -> Iterator[CodeBlock]:
    """Yield fences as blocks; one that holds no code has no rows."""
    for fence in markdown.blocks:
        if not fence.closing:
            continue
        language = _language_of(lines.texts[fence.start])
        end = fence.end if fence.unclosed else fence.end - 1
        start = end if language is None else fence.start + 1
        yield CodeBlock(fence.start, start, end, fence.end, language or "")


def _language_of(opening: str) -> str | None:
    """Language in the opening line of a fence, '' without one. Returns None if it is no code."""
    info = _INFO.match(opening)
    word = info["word"].lower() if info else ""
    braces = (info["braces"] or "").lower() if info else ""
    if word in _NOT_CODE or braces in _NOT_CODE or braces in _PROSE_DIRECTIVES:
        return None
    return word if not braces or braces in _CODE_DIRECTIVES else braces


def _examples(
    prose: _Prose, title: str | None, limit_tokens: int, count: CountTokens
) -> Iterator[Chunk]:
    limit_tokens = min(limit_tokens, SIZES.largest_tokens)
    headers = Headers(title, limit_tokens, count)
    path: list[Heading] = []
    coming = 0
    behind = 0
    for number, block in enumerate(prose.blocks):
        while coming < len(prose.headings) and prose.headings[coming].row < block.begin:
            heading = prose.headings[coming]
            path = [*(outer for outer in path if outer.level < heading.level), heading]
            coming += 1
        top = max(behind, path[-1].row + 1 if path else 0)
        behind = block.behind
        if sum(bool(line.strip()) for line in prose.lines[block.start : block.end]) < FEWEST_LINES:
            continue
        following = prose.blocks[number + 1].begin if number + 1 < len(prose.blocks) else None
        bottom = min(
            len(prose.lines) if following is None else following,
            prose.headings[coming].row if coming < len(prose.headings) else len(prose.lines),
        )
        around = (
            _paragraph_before(prose.lines, top, block.begin),
            _sentence_after(prose.lines, block.behind, bottom),
        )
        yield from _parts(prose.lines, block, path, around, headers, limit_tokens, count)


def _paragraph_before(lines: Sequence[str], top: int, row: int) -> str:
    """Paragraph that ends above ``row``, in one line; rows above ``top`` belong to others."""
    while row > top and not lines[row - 1].strip():
        row -= 1
    end = row
    while row > top and _is_prose(lines[row - 1]):
        row -= 1
    text = _joined(lines[row:end])
    return text[:-1] if text.endswith("::") else text


def _sentence_after(lines: Sequence[str], row: int, bottom: int) -> str:
    """First sentence at ``row`` or below, in one line. One that ends with a colon is left out.

    It announces what comes next.
    """
    while row < bottom and not lines[row].strip():
        row += 1
    start = row
    while row < bottom and _is_prose(lines[row]):
        row += 1
    sentence = _SENTENCE_END.split(_joined(lines[start:row]), maxsplit=1)[0]
    return "" if sentence.endswith(":") else sentence


def _is_prose(line: str) -> bool:
    """True for a line with words that is not a part of a table, a comment or a directive."""
    return not (_NO_WORDS.match(line) or line.lstrip().startswith(_NOT_PROSE))


def _joined(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())


def _parts(
    lines: Sequence[str],
    block: CodeBlock,
    path: Sequence[Heading],
    around: tuple[str, str],
    headers: Headers,
    limit_tokens: int,
    count: CountTokens,
) -> Iterator[Chunk]:
    """Yield the example of a block, in several chunks of whole lines if it does not fit into one.

    Nothing is yielded if a single line does not fit: it holds data.
    """
    names = [one_line(heading.text) for heading in path]
    labels = [heading.label or name for heading, name in zip(path, names, strict=True)]
    header, header_tokens = headers.of(tuple(one_line(label) for label in labels if label))
    most = min(SURROUNDING_TOKENS, (limit_tokens - header_tokens) // _SHARE_OF_SURROUNDINGS)
    before, after = _limited(around, most, count)
    surroundings = _filled(before, after)
    whole_header = _filled(header, surroundings)
    language = block.language or _prompted(lines[block.start : block.end])
    for start, end, tokens in _pieces(lines, block, whole_header, limit_tokens, count):
        yield Chunk(
            start_line=start + 1,
            end_line=end,
            content="\n".join(lines[start:end]),
            header=whole_header,
            tokens=tokens,
            heading_path=tuple(names),
            language=language,
            surroundings=surroundings,
        )


def _pieces(
    lines: Sequence[str], block: CodeBlock, header: str, limit_tokens: int, count: CountTokens
) -> Sequence[tuple[int, int, int]]:
    """First row, row behind the last one, and tokens of each part of a block.

    The result is empty if a line does not fit.
    """
    whole = _trimmed(lines, block.start, block.end)
    tokens = _count_parts(lines, [whole], header, count)[0]
    if tokens <= limit_tokens:
        return [(*whole, tokens)]
    room = limit_tokens - count([header])[0]
    code = lines[block.start : block.end]
    costs = [
        max(tokens, len(line) // SIZES.characters_per_token)
        for line, tokens in zip(code, count(code), strict=True)
    ]
    sums = [0, *accumulate(costs)]
    strengths = [strength(_rank(code, row), 0) for row in range(len(code))]
    most = room - room // _MARGIN
    bounds = Bounds(most, most, min(SIZES.minimum_tokens, most // 2))
    pieces = split(sums, strengths, 0, len(code), bounds)
    trimmed = (_trimmed(lines, block.start + start, block.start + end) for start, end in pieces)
    rows = [(start, end) for start, end in trimmed if start < end]
    counted = _count_parts(lines, rows, header, count)
    if max(counted) > limit_tokens:
        return []
    return [(start, end, tokens) for (start, end), tokens in zip(rows, counted, strict=True)]


def _count_parts(
    lines: Sequence[str], rows: Sequence[tuple[int, int]], header: str, count: CountTokens
) -> list[int]:
    return count([_filled(header, "\n".join(lines[start:end])) for start, end in rows])


def _trimmed(lines: Sequence[str], start: int, end: int) -> tuple[int, int]:
    """Leave out the blank rows at both ends."""
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return start, end


def _rank(code: Sequence[str], row: int) -> int:
    """Rank of a cut before a row of code: best after a blank line, then at the outermost level."""
    if not code[row].strip():
        return 0
    after_blank = row > 0 and not code[row - 1].strip()
    return 1 + 2 * after_blank + (not code[row][0].isspace())


def _prompted(code: Sequence[str]) -> str | None:
    """Language whose prompt begins the code. Returns None without a prompt."""
    first = next((line.lstrip() for line in code if line.strip()), "")
    return next((language for prompt, language in _PROMPTS if first.startswith(prompt)), None)


def _filled(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _limited(around: tuple[str, str], most: int, count: CountTokens) -> tuple[str, str]:
    """Shorten the text before to its end and the text after to its beginning, if they are long."""
    before, after = around
    tokens_before, tokens_after = count([before, after])
    if tokens_before > most:
        sentences = _SENTENCE_END.split(before)
        before = _fitting(sentences, most, count, from_end=True)
        before = before or _fitting(sentences[-1].split(), most, count, from_end=True)
    if tokens_after > most:
        after = _fitting(after.split(), most, count, from_end=False)
    return before, after


def _fitting(parts: Sequence[str], most: int, count: CountTokens, *, from_end: bool) -> str:
    """Join the parts at one end of a text that have at most ``most`` tokens together."""
    ordered = [*reversed(parts)] if from_end else [*parts]
    chosen: list[str] = []
    used = 0
    for part, tokens in zip(ordered, count(ordered), strict=True):
        used += tokens
        if used > most:
            break
        chosen.append(part)
    return " ".join(reversed(chosen) if from_end else chosen)

"""Exact search on real Postgres: lines, order, bounds, visibility and hostile expressions."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from events.models import Filters, Kind
from runtime.errors import UsageError
from store.documents.text import TextPart, joined_lines
from store.postgres.pool import Database
from store.search import exact
from store.search.exact import ExactMatches
from store.search.filters import Condition, Visibility
from store.search.keyword import retriever
from store.search.lines import Place
from store.search.patterns import Pattern
from store.types import ChunkWrite
from tests.support.databases import Database as Fresh
from tests.support.searching import MODEL, Index, unit_vectors
from tests.support.waiting import within

HOSTILE = [
    *(f"{'a?' * n}{'a' * n}" for n in (10, 30, 100)),
    *(f"(a|b)*a(a|b){{{n}}}" for n in (10, 50, 200)),
    *(f"({'x+' * n})+y" for n in (2, 5, 20, 100)),
    *(f"{'(' * n}a+{')+' * n}$" for n in (2, 10, 25)),
    *(f"(.*){{{n}}}z" for n in (2, 20, 200)),
    *(f"{'.*' * n}z" for n in (2, 20, 200)),
    *(f"(a*)*{tail}" for tail in ("b", "$", r"\b", "c{5,9}")),
    *(f"[{chr(0x100)}-{chr(last)}]+x" for last in (0x2FF, 0xFFFF, 0x10FFFF)),
    *(f"(?i)[{chr(0x100)}-{chr(last)}]+x" for last in (0x2FF, 0xFFFF)),
    "|".join(f"a{n}b" for n in range(150)),
    "(" + "|".join("a" * n for n in range(1, 40)) + ")*b",
    *(f"({c}{{0,255}})" for c in ("a", ".", r"\w", "[^a]")),
    r"(\w+\s?)*!",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(\d+)*\d{100}x",
    r"([a-zA-Z]+)*\1",
    "(a{255}){255}",
    "((((a{30}){30}){30}){30})",
    "(" * 1000,
    "[" * 500,
    "a{1,99999}",
    "(?<=a+)b",
    "(?=a)(?=b)",
    "\\" * 501,
    "a**",
    "*" * 300,
    r"(?P<x>a)(?P=x)",
    r"\b" * 200 + "a",
    r"(^|$|a)*" * 20,
    "(x?){200}(y?){200}z",
    "^" * 400 + "a",
]
"""Expressions that make matchers slow or large; some are refused."""


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    yield Index.of(opened)
    await opened.close()


async def find(index: Index, text: str, **options: Any) -> ExactMatches:
    """Search the project ``p``; ``seconds`` is high enough for a busy machine."""
    how = {
        key: options.pop(key) for key in ("regex", "ignore_case", "whole_words") if key in options
    }
    filters, agent = options.pop("filters", Filters()), options.pop("agent", None)
    pattern = Pattern.parse(text, **how)
    options = {"limit": 100, "seconds": 30.0} | options
    return await index.search.exact(await index.live(), agent, pattern, filters, **options)


def lines_of(matches: ExactMatches) -> list[tuple[str, int]]:
    """Uri and number of each line that matches."""
    return [
        (passage.place.uri, line.number)
        for passage in matches.passages
        for line in passage.lines
        if line.spans is not None
    ]


async def write_lines(index: Index, uri: str, text: str, cut_at: list[int], **options: Any) -> None:
    """Write a text in chunks that begin at character 0 and at ``cut_at``, as chunkers do.

    A chunk may begin and end within a line. Line ends between chunks are in none of them.
    """
    write = index.document(uri, ["x"], **options)
    chunks: list[ChunkWrite] = []
    for begin, end in zip([0, *cut_at], [*cut_at, len(text)], strict=True):
        content = text[begin:end]
        first = text.count("\n", 0, begin) + 1 + (len(content) - len(content.lstrip("\n")))
        content = content.strip("\n")
        if content:
            chunk = write.chunks[0]._replace(
                ordinal=len(chunks),
                content=content,
                content_hash=f"{uri} {begin}".encode().ljust(32, b".")[:32],
                start_line=first,
                end_line=first + content.count("\n"),
            )
            chunks.append(chunk)
    await index.store.apply([replace(write, chunks=tuple(chunks))])


def anonymous_kb(pid: int) -> int:
    """Memory of a process that it shares with no other."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])


@pytest.mark.parametrize(("narrowed_share", "walked"), [(0.0, 2), (1.0, 24), (1.0, 2)])
async def test_matches_are_those_of_a_plain_reading(
    index: Index, monkeypatch: pytest.MonkeyPatch, narrowed_share: float, walked: int
) -> None:
    """With any cuts, whole lines and spans equal those of Python's ``re`` on the text.

    That holds if documents are walked, if chosen chunks are put into path order, and with both.
    """
    monkeypatch.setattr(retriever, "NARROWED_SHARE", narrowed_share)
    monkeypatch.setattr(exact, "_FIRST_WALKED", walked)
    monkeypatch.setattr(exact, "_CHUNKS_PER_WALKED", 8)
    rng = random.Random(3)
    words = ["gate", "Gate", "sluice_gate", "gates", "mill", "(mill)", "  ", "naïve", "12", "a.b"]
    texts = {}
    for number in range(12):
        text = "\n".join(
            " ".join(rng.choices(words, k=rng.randrange(9))) for _ in range(rng.randrange(1, 15))
        ).strip("\n")
        texts[f"d{number:02}"] = text
        cuts = sorted(rng.sample(range(1, max(2, len(text))), k=min(4, len(text) // 8)))
        await write_lines(index, f"d{number:02}", text, cuts)
    for uri, line in [("e0", "hinge, cut here"), ("e1", "cut here, hinge")]:
        texts[uri] = f"12\n{line}\n12"
        await write_lines(index, uri, texts[uri], [texts[uri].index("cut") + 3])
    for pattern, how in [
        ("hinge", {"whole_words": True}),
        ("gate", {}),
        ("gate", {"whole_words": True}),
        ("GATE", {"whole_words": True, "ignore_case": True}),
        ("sluice_gate mill", {}),
        ("(mill)", {}),
        (r"gates? (mill|12)", {"regex": True}),
        (r"^\S+$", {"regex": True}),
        (r"na.ve\b", {"regex": True}),
        (r"a\.b$", {"regex": True}),
    ]:
        source = pattern if how.get("regex") else re.escape(pattern)
        if how.get("whole_words"):
            source = rf"(?<!\w)(?:{source})(?!\w)"
        expression = re.compile(source, re.IGNORECASE if how.get("ignore_case") else 0)
        expected = [
            (uri, number, line, tuple(match.span() for match in expression.finditer(line)))
            for uri, text in texts.items()
            for number, line in enumerate(text.split("\n"), 1)
            if expression.search(line)
        ]
        matches = await find(index, pattern, limit=1000, **how)
        assert [
            (passage.place.uri, line.number, line.text, line.spans)
            for passage in matches.passages
            for line in passage.lines
        ] == expected, pattern
        assert matches.files == len({uri for uri, *_ in expected})
        assert matches.matches == sum(len(spans) for *_, spans in expected)
        pages, after = [], None
        while True:  # the same in pages of two
            page = await find(index, pattern, limit=2, after=after, **how)
            pages += lines_of(page)
            if page.next is None:
                break
            after = Place.of_token(page.next.token())
        assert pages == [(uri, number) for uri, number, *_ in expected], pattern


async def test_only_chunks_with_a_word_are_examined(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is so for frequent words too; a part of a word or a phrase may be in other chunks."""
    monkeypatch.setattr(retriever, "NARROWED_SHARE", 0.0)
    for number in range(9):
        await write_lines(index, f"d{number}", "the mill\na gate\na weir", [9, 16])
    for pattern, how, examined in [
        ("gate", {"whole_words": True}, 9),
        ("GATE", {"whole_words": True, "ignore_case": True}, 9),
        (r"^.?\bgate\b", {"regex": True}, 27),
        (r"(\bgate\b)", {"regex": True}, 9),
        ("a gate", {"whole_words": True}, 27),
        ("the", {"whole_words": True}, 27),
        ("gate", {}, 27),
    ]:
        assert (await find(index, pattern, **how)).chunks == examined, pattern
    hidden = await find(index, "gate", whole_words=True, filters=Filters(without=("a gate",)))
    assert (hidden.chunks, hidden.passages) == (0, [])


async def test_few_documents_are_walked_before_the_rest_is_put_into_order(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frequent word fills an answer by the first documents, so that no other chunks are read."""
    ordered = 0
    chosen_documents = exact._chosen_documents

    async def counted(*arguments: Any) -> Any:
        nonlocal ordered
        ordered += 1
        return await chosen_documents(*arguments)

    monkeypatch.setattr(exact, "_chosen_documents", counted)
    monkeypatch.setattr(exact, "_FIRST_WALKED", 2)
    monkeypatch.setattr(retriever, "NARROWED_SHARE", 1.0)
    for number in range(8):
        await index.write(f"d{number}", f"gate {number}" if number != 5 else "mill")
    for per_walked, limit, found, expected in [(2, 1, 1, 0), (2, 9, 7, 1), (4, 1, 1, 1)]:
        monkeypatch.setattr(exact, "_CHUNKS_PER_WALKED", per_walked)
        ordered = 0
        matches = await find(index, "gate", whole_words=True, limit=limit)
        assert (len(matches.passages), matches.files) == (found, 7)
        assert ordered == expected, (per_walked, limit)
    monkeypatch.setattr(exact, "_CHUNKS_PER_WALKED", 2)
    ordered = 0
    assert (await find(index, "Gate", whole_words=True, limit=1)).files == 0
    assert ordered == 1, "few of the chunks with a term have its word with capitals"
    for uri in ("d0", "d1"):
        await index.write(uri, "Gate")
    for most, expected in [(100, 1), (6, 0)]:
        monkeypatch.setattr(exact, "_MOST_ORDERED", most)
        ordered = 0
        assert lines_of(await find(index, "Gate", whole_words=True, limit=1)) == [("d0", 1)]
        assert ordered == expected, most


async def test_context_files_and_filters(index: Index) -> None:
    """Context crosses chunks; ``per_file`` counts lines; filters and row-level security hold."""
    text = "one\ntwo gate\nthree\n\nfive\nsix gate gate\nseven"
    await write_lines(index, "b.txt", text, [3, 13, 19])
    await write_lines(index, "a.py", "gate\nno\ngate", [], kind="code")
    await write_lines(index, "mine", "gate", [], agent="ann")
    await index.write("gone", "gate")
    await index.write("gone")
    matches = await find(index, "gate", context=1)
    assert [[(line.number, line.text) for line in p.lines] for p in matches.passages] == [
        [(1, "gate"), (2, "no"), (3, "gate")],
        [(1, "one"), (2, "two gate"), (3, "three")],
        [(5, "five"), (6, "six gate gate"), (7, "seven")],
    ]
    assert (matches.files, matches.matches) == (2, 5)
    await index.write("z", "x" * 5_000 + "gate" + "y" * 5_000)
    [long] = (await find(index, "gate", context=1, filters=Filters(uri_prefix="z"))).passages
    [line] = long.lines
    [(begin, end)] = line.spans or ()
    assert (line.number, len(line.text), line.text[begin:end]) == (1, 2_000, "gate")
    await index.write("z")
    per_file = await find(index, "gate", per_file=True, limit=1)
    assert [(p.place.uri, p.matching_lines) for p in per_file.passages] == [("a.py", 2)]
    rest = await find(index, "gate", per_file=True, after=per_file.next)
    assert [(p.place.uri, p.matching_lines) for p in rest.passages] == [("b.txt", 2)]
    assert lines_of(await find(index, "gate", filters=Filters(kinds=(Kind.CODE,)))) == [
        ("a.py", 1),
        ("a.py", 3),
    ]
    own = await find(index, "gate", agent="ann", filters=Filters(uri_prefix="m"))
    assert lines_of(own) == [("mine", 1)]


async def test_rows_are_read_of_the_documents_that_are_shown(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``per_file``, a batch has many documents whose matches are only counted."""
    for number in range(10):
        await index.write(f"d{number}", "gate gate")
    with_text: list[str] = []
    take = exact._take

    def recorded(run: Any, document_id: int, place: Place, rows: Sequence[Any]) -> None:
        with_text.extend(place.uri for row in rows if row["text"] is not None)
        take(run, document_id, place, rows)

    monkeypatch.setattr(exact, "_take", recorded)
    monkeypatch.setattr(exact, "_FIRST_BATCH", 10)
    first = await find(index, "gate", per_file=True, limit=2)
    assert lines_of(first) == [("d0", 1), ("d1", 1)]
    assert (first.files, first.matches, with_text) == (10, 20, ["d0", "d1", "d2", "d3"])


async def test_a_long_line_of_a_context_is_read_as_far_as_it_is_shown(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be cut into any number of chunks; the line after it is complete."""
    read: list[TextPart] = []

    def recorded(parts: Sequence[TextPart], first: int) -> list[str]:
        read.extend(parts)
        return joined_lines(parts, first)

    monkeypatch.setattr(exact, "joined_lines", recorded)
    text = "gate\nbegin" + "x" * 20_000 + "\nend\nweir"
    await write_lines(index, "a", text, [*range(1_000, 20_000, 1_000), 20_008])
    [passage] = (await find(index, "gate", context=2)).passages
    assert [(line.number, line.text) for line in passage.lines] == [
        (1, "gate"),
        (2, "begin" + "x" * 1_995),
        (3, "end"),
    ]
    assert sum(len(part.content) for part in read) < 5_000


async def test_marks_are_bounded_but_not_counts(index: Index) -> None:
    """A passage has a span for each of its first matches, and tells how many have none."""
    await write_lines(index, "a", "\n".join(["x" * 40] * 4), [])
    matches = await find(index, ".", regex=True, context=1)
    [passage] = matches.passages
    assert [(len(line.spans or ()), line.unmarked) for line in passage.lines] == [
        (40, 0),
        (10, 30),
        (1, 39),
        (1, 39),
    ]
    assert matches.matches == 160


@pytest.mark.parametrize("narrowed_share", [0.0, 1.0])
async def test_phrases_filter_both_retrievers(
    index: Index, monkeypatch: pytest.MonkeyPatch, narrowed_share: float
) -> None:
    """A phrase may cross lines and case, but not words; ``without`` leaves chunks out."""
    monkeypatch.setattr(retriever, "NARROWED_SHARE", narrowed_share)
    monkeypatch.setattr(retriever, "PHRASE_SHARE", narrowed_share)
    vectors = unit_vectors(1, 5, 8)
    texts = [
        "The Relief\n  valve leaks",
        "relief of a valve",
        "relief valves",
        "relief valve pump",
        "naïve RELIEF of it",
    ]
    for number, text in enumerate(texts):
        await index.write(f"d{number}", text, vectors=vectors[number : number + 1])
    for filters, expected in [
        (Filters(phrases=("relief valve",)), {texts[0], texts[3]}),
        (Filters(phrases=("relief valve",), without=("PUMP",)), {texts[0]}),
        (Filters(without=("relief valve", "of a")), {texts[2], texts[4]}),
        (Filters(phrases=("of",)), {texts[1], texts[4]}),
        (Filters(phrases=("Naïve relief",)), {texts[4]}),
        (Filters(phrases=("relief", "valve pump")), {texts[3]}),
        (Filters(phrases=("relief pump",)), set()),
    ]:
        candidates = await index.candidates("relief valve", vectors[0], filters=filters)
        assert set(await index.texts(candidates.keyword)) == expected
        assert set(await index.texts(candidates.vector[MODEL])) == expected
        matches = await find(index, "relief", ignore_case=True, filters=filters)
        assert matches.files == len(expected)


async def test_chunks_of_a_rare_phrase_are_compared_alone(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The postings of its words narrow both retrievers, until too many chunks have them."""
    vectors = unit_vectors(2, 20, 8)
    for number in range(20):
        text = "a tall crane" if number == 7 else f"a tall swan {number}"
        await index.write(f"d{number}", text, vectors=vectors[number : number + 1])
    narrowed: list[Sequence[int] | None] = []
    of_chunk = Visibility.of_chunk

    def recorded(self: Visibility, *arguments: Any, **options: Any) -> Condition:
        narrowed.append(self.narrowed)
        return of_chunk(self, *arguments, **options)

    monkeypatch.setattr(Visibility, "of_chunk", recorded)
    [only] = (await index.candidates("tall", vectors[0], filters=_phrase("tall crane"))).keyword
    assert narrowed == [[only[0]]]
    all_swans = await index.candidates("tall", vectors[0], filters=_phrase("tall swan"), limit=20)
    assert len(all_swans.vector[MODEL]) == 19
    assert narrowed[1:] == [None]


def _phrase(phrase: str) -> Filters:
    return Filters(phrases=(phrase,))


async def test_a_bound_ends_the_search_and_the_rest_can_be_continued(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a bound the result is truncated, and its ``next`` leads to all the rest."""
    for number in range(5):
        await index.write(f"d{number}", f"gate {number}")
    monkeypatch.setattr(exact, "_FIRST_BATCH", 1)
    monkeypatch.setattr(exact, "_LARGEST_BATCH", 1)
    monkeypatch.setattr(exact, "MOST_CHUNKS", 2)
    seen, after, rounds = [], None, 0
    while True:
        matches = await find(index, "gate", after=after)
        seen += lines_of(matches)
        rounds += 1
        if matches.next is None:
            break
        assert matches.truncated
        assert matches.searched_to == f"d{2 * rounds - 1}"
        after = matches.next
    assert seen == [(f"d{number}", 1) for number in range(5)]
    assert rounds == 3


async def test_a_long_count_is_cut_short_and_the_rest_can_be_continued(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the passages are found, only a part of the time is left for counting."""
    for number in range(5):
        await index.write(f"d{number}", f"gate {number}")
    monkeypatch.setattr(exact, "_FIRST_BATCH", 1)
    monkeypatch.setattr(exact, "_LARGEST_BATCH", 1)
    counted = await find(index, "gate", limit=1)
    assert (counted.files, counted.matches, counted.truncated) == (5, 5, False)
    monkeypatch.setattr(exact, "_COUNTING_SHARE", 0.0)
    first = await find(index, "gate", limit=1)
    assert (first.files, first.matches) == (2, 2)
    assert (first.truncated, first.searched_to) == (True, "d1")
    rest = await find(index, "gate", after=first.next)
    assert lines_of(first) + lines_of(rest) == [(f"d{number}", 1) for number in range(5)]


@pytest.mark.parametrize("narrowed_share", [0.0, 1.0])
async def test_many_chunks_with_a_word_are_not_counted(
    index: Index, monkeypatch: pytest.MonkeyPatch, narrowed_share: float
) -> None:
    """Once the passages are found, the rest is counted completely if it is small, or not at all.

    How long that takes is not decisive: the time for counts in all chunks does not apply.
    """
    monkeypatch.setattr(retriever, "NARROWED_SHARE", narrowed_share)
    monkeypatch.setattr(exact, "_COUNTING_SHARE", 0.0)
    monkeypatch.setattr(exact, "_FIRST_WALKED", 2)
    for number in range(10):
        await index.write(f"d{number}", f"gate {number}")
    for most, expected in [(8, (10, False, None)), (7, (2, True, "d1"))]:
        monkeypatch.setattr(exact, "MOST_COUNTED", most)
        first = await find(index, "gate", whole_words=True, limit=1)
        assert (first.files, first.truncated, first.searched_to if most < 8 else None) == expected
        rest = await find(index, "gate", whole_words=True, after=first.next)
        assert lines_of(first) + lines_of(rest) == [(f"d{number}", 1) for number in range(10)]


async def test_only_chunks_that_a_search_can_examine_decide_what_is_counted(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted chunks, the private ones of others and those outside of filters are not left."""
    monkeypatch.setattr(exact, "_FIRST_WALKED", 2)
    monkeypatch.setattr(exact, "_CHUNKS_PER_WALKED", 7)
    monkeypatch.setattr(exact, "MOST_COUNTED", 4)
    for number in range(5):
        await index.write(f"d{number}", f"gate {number}")
        await index.write(f"gone{number}", "gate")
        await index.write(f"gone{number}")
        await index.write(f"e{number}", "gate", agent="ann")
        await index.write(f"other{number}", "gate, closed", kind="code")
    of_documents, of_texts = Filters(uri_prefix="d"), Filters(without=("closed",))
    most_bits = retriever._MOST_BITS
    for share, read, bits in [
        (0.0, (2, 3), most_bits),
        (1.0, (512, 4_096), most_bits),
        (1.0, (2, 512), most_bits),
        (1.0, (2, 3), most_bits),
        (1.0, (2, 3), 0),
    ]:
        monkeypatch.setattr(retriever, "NARROWED_SHARE", share)
        monkeypatch.setattr(retriever, "_MOST_BITS", bits)
        monkeypatch.setattr(exact, "_CANDIDATES_READ", read)
        for agent, filters, expected in [
            (None, of_documents, (5, False)),
            (None, of_texts, (5, False)),
            ("ann", of_documents, (5, False)),
            ("ann", of_texts, (2, True)),
            (None, Filters(), (2, True)),
        ]:
            options = {"whole_words": True, "agent": agent, "filters": filters}
            first = await find(index, "gate", limit=1, **options)
            assert (first.files, first.truncated) == expected, (share, read, bits, agent)
            rest = await find(index, "gate", after=first.next, **options)
            everything = await find(index, "gate", **options)
            assert lines_of(first) + lines_of(rest) == lines_of(everything)


async def test_the_look_at_what_is_left_ends_with_the_search(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no longer than the time that the batches before it have left."""
    monkeypatch.setattr(exact, "_FIRST_WALKED", 2)
    for number in range(10):
        await index.write(f"d{number}", f"gate {number}")
    rest = exact._QUERIES["rest"].replace("limit $5", "and pg_sleep(600) is not null limit $5")
    monkeypatch.setattr(exact, "_QUERIES", {**exact._QUERIES, "rest": rest})
    search_batch, now = exact._search_batch, 0.0

    async def search_slowly(*arguments: Any) -> None:
        nonlocal now
        await search_batch(*arguments)
        now = 599.9

    monkeypatch.setattr(exact, "monotonic", lambda: now)
    monkeypatch.setattr(exact, "_search_batch", search_slowly)
    async with within(20):
        first = await find(index, "gate", whole_words=True, limit=1, seconds=600.0)
    assert (first.files, first.truncated, first.searched_to) == (2, True, "d1")


async def test_hostile_expressions_are_refused_or_bounded(index: Index) -> None:
    """None of 50 expressions exceeds the bound of time by a statement, or the server's memory."""
    text = "\n".join(["a" * 2000, "ab" * 900, "x" * 1500, "word " * 300, "1" * 800])
    for number in range(40):
        await write_lines(index, f"d{number}", text, [])
    assert len(HOSTILE) >= 50
    refused = 0
    for expression in HOSTILE:
        try:
            matches = await find(index, expression, regex=True, seconds=0.05)
        except UsageError:
            refused += 1
        else:
            assert matches.chunks == 40 or matches.truncated
    assert 10 <= refused < len(HOSTILE)
    async with index.database.connection() as connection:
        pid = await connection.fetchval("select pg_backend_pid()")
    assert anonymous_kb(pid) < 200 * 1024


async def test_matches_have_their_rows_and_the_state_of_their_generation(
    index: Index, database: Fresh
) -> None:
    """The rows of all passages are there, and a generation that was replaced is not live."""
    await index.write("a", "gate 1")
    generation = await index.live()
    pattern = Pattern.parse("gate")
    matches = await index.search.exact(generation, None, pattern, Filters(), limit=9, seconds=30.0)
    [row] = matches.rows.values()
    assert (row.uri, row.content, matches.is_live) == ("a", "gate 1", True)
    owner = await asyncpg.connect(database.owner_url)
    await owner.execute("update generations set state = 'former' where id = $1", generation.id)
    await owner.close()
    replaced = await index.search.exact(generation, None, pattern, Filters(), limit=9, seconds=30.0)
    assert not replaced.is_live

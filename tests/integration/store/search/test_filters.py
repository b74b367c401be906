"""Filters of a search, compared with their plain evaluation in Python over the same documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.models import Filters, Kind, Scalar
from store.postgres.pool import Database
from store.search.filters import Visibility
from tests.support.databases import Database as Fresh
from tests.support.hostile_values import INJECTIONS
from tests.support.searching import Index


@dataclass(frozen=True)
class Doc:
    """A document with one chunk, and the languages that it should be found by."""

    uri: str
    kind: str = "code"
    languages: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    title: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    symbols: str | None = None
    day: int = 1

    @property
    def changed_at(self) -> datetime:
        return datetime(2026, 3, self.day, 12, tzinfo=UTC)


DOCS = [
    Doc("src/a.py", languages=("python",), symbols="ask, Client.ask", metadata={"v": 1}),
    Doc("src/b.py", languages=("python",), symbols="Client", metadata={"v": 2.5}, day=2),
    Doc("src/deep/c.rs", languages=("rust",), collections=("new",), metadata={"v": "2.5"}),
    Doc("src/deep/d.h", languages=("c", "cpp"), metadata={"v": True, "team": "mill"}, day=3),
    Doc("docs/a.md", "markdown", (), ("new", "docs"), "A", {"v": 10**30, "team": "weir"}),
    Doc("docs/b.md", "markdown", (), ("docs",), "B 100%", {"v": -3, "team": "Mill"}, day=2),
    Doc("docs/deep/c.txt", "text", (), (), "", {"v": "2026-03-02", "team": "m_ll"}),
    Doc("d.txt", "text", (), ("docs",), "C", {"v": "2026-03-02T23:30:00-01:00"}, day=9),
    Doc("e.txt", "text", (), (), None, {"v": "2026-03-02 10:00"}, day=3),
    Doc("f.txt", "text", (), (), "c", {"v": "2026-02-29", "team": 5}),
    Doc("g.txt", "text", (), (), "ü", {"v": "2028-02-29T00:00:00.5Z"}, day=2),
    Doc("h.txt", "text", (), ("new",), "A", {"title": "own", "metadata.v": "odd", "a b": 0.1}),
]

GLOBS: dict[str, Callable[[str], bool]] = {
    "*.py": lambda uri: uri.endswith(".py"),
    "src/": lambda uri: uri.startswith("src/"),
    "/src/?.py": lambda uri: uri in ("src/a.py", "src/b.py"),
    "**/deep/*": lambda uri: "/deep/" in uri,
    "{docs/**,*.txt}": lambda uri: uri[:5] == "docs/" or ("/" not in uri and uri[-4:] == ".txt"),
    "[a-c].*": lambda uri: uri.rpartition("/")[2][0] in "abc",
}

VALUES: list[Scalar] = [
    *(1, 2.5, 10**30, -3, 5, 0.1, True, False, "2.5", "A", "B 100%", "mill", "Mill", "c", "own"),
    *("2026-03-02", "2026-03-03T00:30Z", "2026-03-02T10:00:00", "2026-02-29", "", "ü"),
]
TIMES = ["2026-03-01", "2026-03-02", "2026-03-02T12:00Z", "2026-03-09T14:00:00+02:00"]
PATTERNS = ["%", "_", "m_ll", "m\\_ll", "%ill", "B 100\\%", "docs/%", "%.p_", "2026%", "d_cs"]
KEYS = ["v", "team", "metadata.title", "metadata.metadata.v", "a b", "none"]

values = st.sampled_from(VALUES)
texts = st.sampled_from([value for value in VALUES if isinstance(value, str)])
times = st.sampled_from(TIMES)
orders = st.sampled_from(["gt", "gte", "lt", "lte"])
patterns = st.sampled_from(PATTERNS)


def leaf(fields: Any, ops: Any, value: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"field": fields, "op": ops, "value": value})


def between(fields: Any, value: Any) -> st.SearchStrategy[dict[str, Any]]:
    pairs = st.tuples(value, value).map(list)
    return leaf(fields, st.just("between"), pairs)


def on(fields: Any, value: Any, ordered: Any) -> list[st.SearchStrategy[dict[str, Any]]]:
    """Conditions on fields with all operators that are made of these values."""
    return [
        leaf(fields, st.sampled_from(["eq", "ne"]), value),
        leaf(fields, st.just("in"), st.lists(value, min_size=1, max_size=3)),
        st.fixed_dictionaries({"field": fields, "op": st.just("exists")}),
        *([] if ordered is None else [leaf(fields, orders, ordered), between(fields, ordered)]),
    ]


keys = st.sampled_from(KEYS)
numbers = st.sampled_from([value for value in VALUES if type(value) in (int, float)])
plain = st.sampled_from(["2.5", "A", "Mill", "c", "ü", "d"])
columns = st.sampled_from(["uri", "title"])
leaves = st.one_of(
    *on(keys, values, numbers),
    *on(keys, texts, times),
    *on(keys, texts, plain),
    *on(columns, texts | st.sampled_from([doc.uri for doc in DOCS]), plain),
    *on(st.just("changed_at"), times, times),
    *on(st.just("kind"), st.sampled_from(["code", "markdown", "text"]), None),
    *on(st.just("collection"), st.sampled_from(["docs", "new", "none"]), None),
    *on(st.just("language"), st.sampled_from(["python", "rust", "cpp"]), None),
    leaf(keys | columns | st.just("collection"), st.just("like"), patterns),
)
wheres = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=5,
)
some_globs = st.lists(
    st.tuples(st.sampled_from(["", "!"]), st.sampled_from(sorted(GLOBS))).map("".join), max_size=3
)
filters_of_all_kinds = st.fixed_dictionaries(
    {},
    optional={
        "kinds": st.lists(st.sampled_from([Kind.CODE, Kind.TEXT, Kind.MARKDOWN]), max_size=2),
        "collections": st.lists(st.sampled_from(["docs", "new"]), max_size=2),
        "uri_prefix": st.sampled_from(["", "src/", "d"]),
        "metadata": st.sampled_from([{}, {"v": 1.0}, {"team": "mill", "v": True}]),
        "path_globs": some_globs,
        "languages": st.lists(st.sampled_from(["py", "rust", "c++"]), max_size=2),
        "symbols": st.lists(st.sampled_from(["ask", "Client", "Client.ask", "as"]), max_size=2),
        "where": wheres,
    },
).map(Filters.model_validate)


@pytest.fixture
async def index(database: Fresh) -> AsyncIterator[Index]:
    opened = await Database.open(database.operator_url)
    index = Index.of(opened)
    for doc in DOCS:
        write = index.document(
            doc.uri,
            [doc.uri],
            kind=doc.kind,
            collections=doc.collections,
            metadata=doc.metadata,
            symbols=[doc.symbols],
        )
        await index.store.apply([replace(write, title=doc.title, published_at=doc.changed_at)])
    yield index
    await opened.close()


async def selected(index: Index, filters: Filters) -> set[str]:
    """Uris of the documents that pass, by each of the ways that the retrievers ask for them."""
    generation = await index.live()
    visibility = Visibility(generation.id, filters)
    async with index.database.scope(generation.project_id, None, generation.id) as connection:
        uris = {
            row["id"]: row["uri"]
            for row in await connection.fetch(
                "select c.id, d.uri from chunks c join documents d on d.id = c.document_id"
            )
        }
        every = set(await visibility.every(connection))
        assert (await visibility.among(connection, list(uris))).keys() == every
        for one_by_one in (True, False):
            condition = visibility.of_chunk("x.id", 1, one_by_one=one_by_one)
            if condition.sql:
                rows = await connection.fetch(
                    f"select x.id from chunks x where {condition.sql}",  # noqa: S608
                    *condition.arguments,
                )
                assert {row["id"] for row in rows} == every
    return {uris[chunk_id] for chunk_id in every}


@settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(filters=filters_of_all_kinds)
async def test_every_filter_selects_what_python_selects(index: Index, filters: Filters) -> None:
    assert await selected(index, filters) == {doc.uri for doc in DOCS if passes(filters, doc)}


def passes(filters: Filters, doc: Doc) -> bool:
    wanted = [glob for glob in filters.path_globs if not glob.startswith("!")]
    unwanted = [glob[1:] for glob in filters.path_globs if glob.startswith("!")]
    names = [part for name in (doc.symbols or "").split(", ") for part in (name, last(name))]
    return all(
        (
            not filters.kinds or doc.kind in filters.kinds,
            not filters.collections or {*doc.collections} & {*filters.collections},
            doc.uri.startswith(filters.uri_prefix or ""),
            all(same(doc.metadata.get(key), value) for key, value in filters.metadata.items()),
            not wanted or any(GLOBS[glob](doc.uri) for glob in wanted),
            not any(GLOBS[glob](doc.uri) for glob in unwanted),
            not filters.languages or {*doc.languages} & {*filters.languages},
            not filters.symbols or {*names} & {*filters.symbols},
            filters.where is None or holds(filters.where.model_dump(exclude_none=True), doc),
        )
    )


def last(name: str) -> str:
    return name.rpartition(".")[2]


def same(stored: Scalar | None, value: Scalar) -> bool:
    """Equality as in JSON: true is not 1."""
    return stored == value and isinstance(stored, bool) == isinstance(value, bool)


def holds(where: Mapping[str, Any], doc: Doc) -> bool:
    if "and" in where:
        return all(holds(part, doc) for part in where["and"])
    if "or" in where:
        return any(holds(part, doc) for part in where["or"])
    if "not" in where:
        return not holds(where["not"], doc)
    stored = stored_values(where["field"], doc)
    op, value = where["op"], where.get("value")
    if op == "ne":
        return bool(stored) and not any(compare("eq", one, value) for one in stored)
    return any(compare(op, one, value) for one in stored)


def stored_values(name: str, doc: Doc) -> list[Any]:
    own: dict[str, list[Any]] = {
        "uri": [doc.uri],
        "kind": [doc.kind],
        "title": [] if doc.title is None else [doc.title],
        "collection": list(doc.collections),
        "language": list(doc.languages),
        "changed_at": [doc.changed_at],
    }
    if name in own:
        return own[name]
    key = name.removeprefix("metadata.")
    return [doc.metadata[key]] if key in doc.metadata else []


def compare(op: str, stored: Any, value: Any) -> bool:
    if op == "exists":
        return True
    if op == "in":
        return any(compare("eq", stored, item) for item in value)
    if op == "between":
        return compare("gte", stored, value[0]) and compare("lte", stored, value[1])
    if op == "like":
        return isinstance(stored, str) and like(value, stored)
    if isinstance(stored, datetime):
        return in_order(op, stored, *span(value))
    if op == "eq":
        return same(stored, value)
    if isinstance(value, str) != isinstance(stored, str) or isinstance(stored, bool):
        return False
    if isinstance(value, str) and is_time(value):
        return is_time(stored) and in_order(op, span(stored)[0], *span(value))
    return in_order(op, stored, value, value)


def in_order(op: str, stored: Any, first: Any, final: Any) -> bool:
    """Order of a value and a period from its first to its final moment."""
    return bool(
        {
            "eq": first <= stored <= final,
            "gt": stored > final,
            "gte": stored >= first,
            "lt": stored < first,
            "lte": stored <= final,
        }[op]
    )


def is_time(text: str) -> bool:
    try:
        span(text)
    except ValueError:
        return False
    return True


def span(text: str) -> tuple[datetime, datetime]:
    time = datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    day = timedelta(days=1, microseconds=-1)
    return time, time + day if len(text) == len("2026-03-02") else time


def like(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[i:]) for i in range(len(text) + 1))
    if pattern[0] == "\\":
        pattern = pattern[1:]
    elif pattern[0] == "_":
        return bool(text) and like(pattern[1:], text[1:])
    return text[:1] == pattern[0] and like(pattern[1:], text[1:])


async def test_no_part_of_a_condition_is_sql_or_a_format(index: Index) -> None:
    """Each injection is a key, a value, a pattern, a symbol and a path that no document has."""
    for text in INJECTIONS:
        parts: list[dict[str, Any]] = [
            {"field": text, "op": "exists"},
            *({"field": text, "op": op, "value": text} for op in ("eq", "ne", "gt", "lte")),
            *({"field": "v", "op": op, "value": text} for op in ("eq", "gt")),
            *({"field": name, "op": "in", "value": [text]} for name in ("uri", "v", "collection")),
            {"field": "title", "op": "between", "value": [text, text]},
        ]
        for part in parts:
            negated = Filters.model_validate({"where": {"not": part}})
            both = {"and": [part, {"not": part}]}
            assert await selected(index, Filters.model_validate({"where": both})) == set()
            await selected(index, negated)
        assert await selected(index, Filters(symbols=(text.strip() or "x",))) == set()
    assert await selected(index, Filters()) == {doc.uri for doc in DOCS}

"""Events as bytes: valid ones are accepted, all others are malformed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from events.models import (
    EVENT_TYPES,
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Query,
    content_hash,
    parse_event,
)
from runtime import protocol_limits
from runtime.errors import MalformedEvent

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
data_fields = st.sampled_from(
    [*DocumentChange.model_fields, *Query.model_fields, "problem", "query_id", "token", "\x00"]
)
envelopes = st.fixed_dictionaries(
    {"type": st.sampled_from(list(EVENT_TYPES)) | st.text(max_size=10)},
    optional={
        "specversion": st.just("1.0") | json_values,
        "id": json_values,
        "time": json_values,
        "data": st.dictionaries(data_fields, json_values, max_size=8) | json_values,
    },
)


def only_malformed(raw: bytes) -> None:
    problem = ""
    try:
        event = parse_event(raw)
    except MalformedEvent as error:
        problem = str(error)
    else:
        assert parse_event(event.to_bytes()) == event
    assert problem.isprintable()
    assert len(problem) < 1000


@given(st.binary(max_size=300))
def test_bytes_are_an_event_or_malformed(raw: bytes) -> None:
    only_malformed(raw)


@given(envelopes)
def test_envelopes_are_an_event_or_malformed(envelope: dict[str, Any]) -> None:
    only_malformed(json.dumps(envelope).encode(errors="surrogatepass"))


def change(**data: object) -> bytes:
    return json.dumps(
        {"type": "document.changed", "data": {"project": "p", "uri": "a", **data}}
    ).encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, "needs either content"),
        ({"content": "x", "content_ref": {"sha256": "0" * 64, "size_bytes": 1}}, "needs either"),
        ({"change": "delete", "content": "x"}, "carries no content"),
        ({"change": "rename", "content": "x"}, "old_uri is required for a rename"),
        ({"content": "x", "old_uri": "b"}, "allowed only there"),
        ({"change": "rename", "content": "x", "old_uri": "a"}, "two different uris"),
        ({"content": "x", "content_hash": "0" * 64}, "not the SHA-256"),
        ({"content": "a\x00b"}, "NUL"),
        ({"content": "x", "uri": ""}, "uri: must not be empty"),
        ({"content": "x", "uri": "é" * 1500}, "uri: must have at most 2,048 bytes"),
        ({"content": "x", "project": "../x"}, r"project: may have up to 63 characters \(a to z"),
        ({"content": "x", "agent": "a b"}, r"agent: may have up to 128 characters \(A to Z"),
        (
            {"content": "x", "collections": ["a"] * 33},
            "data.collections: must have at most 32 items",
        ),
        ({"content": "x", "collections": ["*"]}, "collections.0: may have up to 127 characters"),
        ({"content": "x", "project": "p\n"}, "project"),
        ({"content": "x", "metadata": {"\x00": 1}}, "NUL"),
        ({"content": "x", "metadata": {"a": {"b": 1}}}, "data.metadata.a: must be a text without"),
        ({"content": 5}, "data.content: must be a text"),
        ({"content": "x", "collections": "a"}, "data.collections: must be a list"),
        (
            {"content": "x", "title": "x" * 513},
            "data.title: must have at most 512 characters",
        ),
        ({"content": "x", "metadata": {str(i): i for i in range(65)}}, "metadata"),
        ({"content": "x", "surprise": 1}, "data.surprise: is unknown"),
        ({"content": "x", "uri": None}, "data.uri: must be a text"),
        ({"content": "x", "media_type": "text"}, "data.media_type: must be a media type"),
        (
            {"content": "x", "origin": {"source": "a" * 32, "revision": 0}},
            "revision: must be at least 1",
        ),
        ({"content": "x", "origin": {"source": "docs", "revision": 1}}, "origin.source"),
        ({"content": "x", "kind": "code_example"}, "a part of documents, not a kind of document"),
    ],
)
def test_inconsistent_changes_are_refused_with_the_reason(
    data: dict[str, object], reason: str
) -> None:
    with pytest.raises(MalformedEvent, match=reason):
        parse_event(change(**data))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type": "document.changed", "data": ' + b"[" * 50_000,
        change(content="x").replace(b'"x"', b'"\\ud800"'),
        change(content="x").replace(b'"x"', b'"\xff"'),
        change(content="x", metadata={"a": 1}).replace(b"1}", b"NaN}"),
        b"",
        b"null",
        b'{"type": "document.vanished"}',
    ],
    ids=["nested", "surrogate", "not utf-8", "nan", "empty", "null", "unknown type"],
)
def test_hostile_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedEvent):
        parse_event(raw)


def test_a_body_over_the_limit_is_refused_unread() -> None:
    with pytest.raises(MalformedEvent, match="content_ref"):
        parse_event(b" " * (protocol_limits.EVENT_BYTES + 1))


def test_type_and_data_are_all_that_a_publisher_must_write() -> None:
    event = parse_event(change(content="x", content_hash=content_hash("x")))
    assert isinstance(event, DocumentChanged)
    assert (event.data.change, event.source) == ("upsert", "headrace")


def test_unknown_extension_attributes_are_ignored() -> None:
    event = json.loads(change(content="x")) | {"traceparent": "00-1"}
    assert parse_event(json.dumps(event).encode())


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",) * 2,
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", None),
        ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
        ("x" * 100_000, None),
        (7, None),
    ],
)
def test_a_wrong_trace_context_is_dropped_and_the_event_is_kept(
    sent: object, kept: str | None
) -> None:
    change = {"project": "p", "uri": "a.md", "content": "herons"}
    event = DocumentChanged.model_validate(
        {"type": "document.changed", "data": change, "traceparent": sent, "tracestate": sent}
    )
    assert event.traceparent == kept
    assert (event.tracestate is None) == (not isinstance(sent, str) or len(sent) > 512)


def test_an_event_without_extensions_is_sent_as_before() -> None:
    event = DocumentChanged(data=DocumentChange(project="p", uri="a.md", content="herons"))
    assert json.loads(event.to_bytes()).keys() == {
        "specversion", "id", "source", "time", "datacontenttype", "type", "data",
    }  # fmt: skip


CONTENT = "Herons nest in March."
HERONS = {"project": "birds", "uri": "herons.md", "content": CONTENT}


def fingerprint(**fields: Any) -> str:
    return DocumentChange(**{**HERONS, **fields}).fingerprint()


@pytest.mark.parametrize(
    "fields",
    [
        {"project": "fish"},
        {"uri": "swans.md"},
        {"content": "Herons nest in April."},
        {"change": "rename", "old_uri": "swans.md"},
        {"change": "delete", "content": None},
        {"kind": "markdown"},
        {"media_type": "text/markdown"},
        {"title": "Herons"},
        {"agent": "ada"},
        {"collections": ("waders",)},
        {"commit": "abc"},
        {"permalink_template": "https://example.org/{path}"},
        {"metadata": {"reviewed": True}},
        {"origin": {"source": "0" * 32, "revision": 7}},
        {"expected_hash": "0" * 64},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_field_counts_in_the_fingerprint_of_a_change(fields: dict[str, Any]) -> None:
    assert fingerprint(**fields) != fingerprint()


def test_the_form_of_a_change_does_not_count_in_its_fingerprint() -> None:
    """Content may be inline or referenced; collections and metadata have no order."""
    reference = ContentReference(sha256=content_hash(CONTENT), size_bytes=len(CONTENT))
    assert fingerprint(content=None, content_ref=reference) == fingerprint()
    assert fingerprint(content_hash=content_hash(CONTENT)) == fingerprint()
    assert fingerprint(collections=("a", "b")) == fingerprint(collections=("b", "a", "b"))
    metadata = fingerprint(metadata={"a": 1, "b": "é"})
    assert metadata == fingerprint(metadata={"b": "é", "a": 1})


def test_a_fingerprint_stays_the_same_in_later_versions() -> None:
    """Publishers of two versions compare theirs during an upgrade."""
    assert fingerprint() == "NKMCMQcJC2mYeGpW"
    assert fingerprint(title="Herons", collections=("waders",)) == "XkQHKkVPSHoHSauu"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"min_similarity": 1.1}, "less than or equal to 1"),
        ({"min_similarity": -0.1}, "greater than or equal to 0"),
        ({"min_similarity": 0.5, "mode": "keyword"}, "use the mode hybrid or vector"),
    ],
)
def test_a_similarity_that_no_retriever_measures_is_refused(
    fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        Query(project="birds", text="herons", reply_to="here", **fields)

"""Kind of a document: from its media type, its name, or its first line."""

from __future__ import annotations

import pytest

from events.models import Kind
from processors.chunking import CHUNKERS
from processors.chunking.chunkers.grammars import GRAMMARS
from processors.chunking.registry import (
    _KIND_BY_MEDIA_TYPE,
    _KIND_BY_SUFFIX,
    _LANGUAGE_BY_SUFFIX,
    kind_of,
    language_of,
)


@pytest.mark.parametrize(
    ("uri", "media_type", "content", "kind", "language"),
    [
        ("src/a.py", None, "", "code", "python"),
        ("SRC/A.PY", None, "", "code", "python"),
        ("https://host/x/a.tsx?raw=1#L3", None, "", "code", "tsx"),
        ("bin/tool", None, "#!/usr/bin/env -S python3.11 -u\n", "code", "python"),
        ("bin/tool", None, "#!/bin/sh\n", "code", "bash"),
        ("bin/tool", None, "#!/bin/awk -f\n", "text", None),
        ("README.md", None, "", "markdown", None),
        ("note", "text/markdown; charset=utf-8", "", "markdown", None),
        ("a.py", "application/pdf", "", "pdf", "python"),
        ("api.yaml", None, "openapi: 3.1.0\n", "openapi", None),
        ("api.json", None, '{\n  "swagger": "2.0"\n}', "openapi", None),
        ("values.yaml", None, "a: 1\n", "code", None),
        ("Makefile", None, "", "code", None),
        ("LICENSE", None, "", "text", None),
        ("what.ever", None, "", "text", None),
        ("http://[bad", None, "", "text", None),
        ("", None, "", "text", None),
    ],
)
def test_kind_and_language(
    uri: str, media_type: str | None, content: str, kind: str, language: str | None
) -> None:
    """Each rule gives the kind and language of its row; anything else is text."""
    assert kind_of(uri, media_type, content) == kind
    assert language_of(uri, media_type, content) == language


def test_every_language_has_a_grammar() -> None:
    """Each language of a suffix has a grammar."""
    assert set(_LANGUAGE_BY_SUFFIX.values()) == set(GRAMMARS)


def test_every_kind_but_pdf_has_a_chunker() -> None:
    """Each kind except PDF has a chunker."""
    assert {kind.value for kind in Kind} - set(CHUNKERS) == {"pdf"}


def test_events_can_name_every_kind() -> None:
    """Each kind that a document can have is a ``Kind``, or an answer that cites it would fail."""
    assert {kind.value for kind in Kind} == {*CHUNKERS, "pdf"}
    detected = {*_KIND_BY_SUFFIX.values(), *_KIND_BY_MEDIA_TYPE.values()}
    assert detected <= {kind.value for kind in Kind}

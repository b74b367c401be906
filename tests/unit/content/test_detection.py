"""Kind of a document: from its media type, its bytes, its name, or its first line."""

from __future__ import annotations

from random import Random

import pytest

from content.detection import (
    _BINARY_KIND_BY_SUFFIX,
    _KIND_BY_MEDIA_TYPE,
    _KIND_BY_SUFFIX,
    _RENDERED_KIND_BY_MEDIA_TYPE,
    _TEXT_FORMAT_BY_SUFFIX,
    Detection,
    decode,
    detect,
    has_binary_name,
    is_known_binary,
    kind_of,
    language_of,
)
from content.languages import BY_SUFFIX
from content.registry import EXTRACTORS
from events.models import DOCUMENT_KINDS, Kind
from processors.chunking import CHUNKERS
from processors.chunking.chunkers.grammars import GRAMMARS
from runtime.errors import (
    Encrypted,
    HeadraceError,
    LegacyFormat,
    LimitExceeded,
    Poison,
    UnsupportedContent,
)
from tests.support.containers import compound_file, zip_of

MAIL_HEAD = "Received: x\n by y\nDate: z\nFrom: a\nTo: b\nSubject: c\n"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
MAIN_PART = '<Override ContentType="application/vnd.{}.main+xml"/>'
DOCX = zip_of(
    {
        "[Content_Types].xml": MAIN_PART.format(
            "openxmlformats-officedocument.wordprocessingml.document"
        )
    }
)
XLSM = zip_of({"[Content_Types].xml": MAIN_PART.format("ms-excel.sheet.macroEnabled")})
SLACK = zip_of({"channels.json": "[]", "general/2026-03-02.json": "[]"})
NOTEBOOK = '{"cells": [{"cell_type": "code", "source": []}], "metadata": {}, "nbformat": 4}'
MESSAGES = '[{"role": "user", "content": "hello"}]'


@pytest.mark.parametrize(
    ("uri", "media_type", "content", "kind", "language"),
    [
        ("src/a.py", None, "", "code", "python"),
        ("SRC/A.PY", None, "", "code", "python"),
        ("https://host/x/a.tsx?raw=1#L3", None, "", "code", "tsx"),
        ("bin/tool", None, "#!/usr/bin/env -S python3.11 -u\n", "code", "python"),
        ("bin/tool", None, "#!/bin/sh\n", "code", "bash"),
        ("bin/tool", None, "#!/bin/awk -f\n", "text", None),
        ("bin/tool", None, "#!/usr/bin/env lua5.4\n", "code", "lua"),
        ("build.gradle.kts", None, "", "code", "kotlin"),
        ("build.sbt", None, "", "code", "scala"),
        ("mix.exs", None, "", "code", "elixir"),
        ("main.tf", None, "", "code", "hcl"),
        ("schema", "application/sql; charset=utf-8", "", "code", "sql"),
        ("Dockerfile", None, "", "code", "dockerfile"),
        ("deploy/Dockerfile.dev", None, "", "code", "dockerfile"),
        ("dev.Containerfile", None, "", "code", "dockerfile"),
        ("Dockerfile.md", None, "", "markdown", None),
        ("View.mm", None, "", "code", "objc"),
        ("View.m", None, "// MIT\n#import <UIKit/UIKit.h>\n", "code", "objc"),
        ("plot.m", None, "% plots\nfunction plot(x)\nend\n", "code", None),
        ("View.h", None, "#pragma once\n@interface View : UIView\n", "code", "objc"),
        ("view.h", None, "#include <stdio.h>\n", "code", "cpp"),
        ("schema.gql", None, "", "code", None),
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
    assert set(BY_SUFFIX.values()) == set(GRAMMARS)


def test_events_can_name_every_kind() -> None:
    """Each kind that a document can have is a ``Kind``, or an answer that cites it would fail."""
    assert {kind.value for kind in DOCUMENT_KINDS} == {*CHUNKERS, *EXTRACTORS}
    detected = {*_KIND_BY_SUFFIX.values(), *_KIND_BY_MEDIA_TYPE.values()}
    assert detected <= {kind.value for kind in Kind}


def test_every_format_has_an_extractor() -> None:
    """Each kind that the tables of formats name has an extractor."""
    tables = (_BINARY_KIND_BY_SUFFIX, _TEXT_FORMAT_BY_SUFFIX, _RENDERED_KIND_BY_MEDIA_TYPE)
    assert all(kind in EXTRACTORS for table in tables for kind in table.values())


@pytest.mark.parametrize(
    ("uri", "media_type", "content", "kind"),
    [
        ("a", None, PDF, "pdf"),
        ("a.pdf", None, b"HTTP/1.1 200 OK\n\n" + PDF, "pdf"),
        ("a.docx", None, DOCX, "word"),
        ("a", "application/zip", DOCX, "word"),
        ("a.xlsm", None, XLSM, "sheet"),
        ("a.zip", None, SLACK, "conversation"),
        (
            "a.zip",
            None,
            zip_of({"x/users.json": "[]", "x/dev/2026-03-02.json": "[]"}),
            "conversation",
        ),
        ("a.zip", None, zip_of({"conversations.json": "[]"}), "conversation"),
        ("a.xls", None, compound_file("Workbook"), "sheet"),
        ("a.ipynb", None, NOTEBOOK, "notebook"),
        ("a.json", None, NOTEBOOK, "notebook"),
        ("a.json", None, '{"metadata": {}, "nbformat": 3, "worksheets": []}', "notebook"),
        ("a.json", None, MESSAGES, "conversation"),
        ("a", None, "\ufeff" + MESSAGES, "conversation"),
        ("a.jsonl", None, '{"role": "user", "content": "hello"}\n', "conversation"),
        ("a.jsonl", None, '{"messages": [{"role": "user", "content": "a"}]}', "conversation"),
        ("a.json", None, '[{"title": "t", "mapping": {"n1": {"message": null}}}]', "conversation"),
        ("a.json", None, '[{"uuid": "u", "chat_messages": []}]', "conversation"),
        ("a.json", None, '[{"type": "message", "ts": "1.2", "text": "a"}]', "conversation"),
        (
            "a.json",
            None,
            '{"messages": [{"author": {"name": "A"}, "content": "", "timestamp": ""}]}',
            "conversation",
        ),
        ("a.json", None, '[{"role": "farmer", "content": "hay"}]', "code"),
        ("a.json", None, '{"role": "user", "content": "hello"}', "code"),
        ("a.json", None, '{"x": [' * 50_000, "code"),
        ("a.py", None, MESSAGES, "code"),
        ("a.vtt", None, "WEBVTT\n\n00:01.000 --> 00:02.000\nhi\n", "conversation"),
        ("a.txt", None, "1\r\n00:00:01,000 --> 00:00:02,000\r\nhi\r\n", "conversation"),
        ("a.html", None, "no tag", "html"),
        ("a.cgi", None, "<?xml version='1.0'?>\n<!-- x -->\n<!DOCTYPE html>", "html"),
        ("a", "text/html; charset=latin-1", b"<p>caf\xe9", "html"),
        ("a.md", None, "<!doctype html>", "markdown"),
        ("a.php", None, "<html>", "code"),
        ("a.csv", None, "a;b", "sheet"),
        ("a.csv", "text/markdown", "a;b", "markdown"),
        ("a.eml", None, "From: a@b\n\nhi", "email"),
        ("a.eml", None, "no header", "text"),
        ("cur/1457", None, f"{MAIL_HEAD}\nhi", "email"),
        ("cur/1457.M2P1.host:2,S", None, f"{MAIL_HEAD}\nhi", "email"),
        ("new/1795888327.M40120P251Q1.lists.md", None, f"{MAIL_HEAD}\nhi", "email"),
        ("new/1795888327.3421_5.host", None, f"{MAIL_HEAD}\nhi", "email"),
        ("new/1795888327.md", None, f"{MAIL_HEAD}\nhi", "markdown"),
        ("cur/1457", None, "From: a\nTo: b\n\nminutes of a meeting", "text"),
        ("notes.txt", None, f"{MAIL_HEAD}\nhi", "text"),
        ("a.mbox", None, "From a@b Mon\nFrom: a@b\n\nhi", "email"),
        ("a.epub", None, zip_of({"mimetype": "application/epub+zip"}), "book"),
        (
            "a.ods",
            None,
            zip_of({"mimetype": "application/vnd.oasis.opendocument.spreadsheet"}),
            "sheet",
        ),
        (
            "openapi.json",
            None,
            '{"info": {' + '"x": "y",' * 500 + '"z": 1},"openapi":"3.1.0"}',
            "openapi",
        ),
        ("a.txt", None, "héllo".encode("utf-16"), "text"),
        ("magic.py", None, 'HEADER = b"%PDF-"', "code"),
        ("a.txt", None, "", "text"),
    ],
)
def test_kind_by_the_first_sign_that_decides(
    uri: str, media_type: str | None, content: bytes | str, kind: str
) -> None:
    """Each row of the table of signs is detected, and what only resembles one is not."""
    raw = content if isinstance(content, bytes) else content.encode()
    detection = detect(uri, media_type, raw)
    assert detection.kind == kind
    assert detection.warnings == ()


def test_the_kind_of_the_event_decides() -> None:
    """A given kind is used, whatever the name says."""
    assert detect("a.py", None, b"x", "text") == Detection("text", "python")
    assert detect("a.html", None, b"<html>", "code") == Detection("code")
    assert detect("a.txt", None, b"\xff\0", "book") == Detection("book")


def test_the_language_of_code_is_detected() -> None:
    """Code has a language; a document that is rendered has none."""
    assert detect("a.py", None, b"x = 1").language == "python"
    assert detect("a.html", None, b"<p>").language is None


@pytest.mark.parametrize(
    ("uri", "media_type", "raw", "kind", "warning"),
    [
        ("a.docx", None, PDF, "pdf", "the name ends in .docx, but the bytes are a PDF document"),
        ("a.txt", None, DOCX, "word", "the name ends in .txt, but the bytes are a Word document"),
        ("a.xls", None, b"<html><table>", "html", "the name ends in .xls, but the bytes are HTML"),
        (
            "a",
            "text/html",
            PDF,
            "pdf",
            "the media type is text/html, but the bytes are a PDF document",
        ),
    ],
)
def test_a_name_that_contradicts_the_bytes_loses(
    uri: str, media_type: str | None, raw: bytes, kind: str, warning: str
) -> None:
    """The bytes decide, and a warning names the contradiction."""
    assert detect(uri, media_type, raw) == Detection(kind, None, (warning,))


@pytest.mark.parametrize(
    ("raw", "error", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", UnsupportedContent, "UTF-8"),
        (b"caf\xe9", UnsupportedContent, "UTF-8"),
        (b"text\0text", UnsupportedContent, "zeros"),
        (b"\xff\xfe\0", UnsupportedContent, "UTF-8"),
        (compound_file("EncryptedPackage"), Encrypted, "password"),
        (compound_file("WordDocument"), LegacyFormat, ".docx"),
        (compound_file("PowerPoint Document"), LegacyFormat, ".pptx"),
        (compound_file("__properties_version1.0"), LegacyFormat, ".eml"),
        (compound_file("Contents"), LegacyFormat, "current format"),
        (zip_of({"a.class": "x"}), UnsupportedContent, "1 files"),
        (
            zip_of({"mimetype": "application/vnd.oasis.opendocument.text"}),
            UnsupportedContent,
            ".docx",
        ),
        (zip_of({f"{number}": "" for number in range(2_001)}), LimitExceeded, "2,000"),
    ],
)
def test_unknown_bytes_are_refused(raw: bytes, error: type[HeadraceError], words: str) -> None:
    """Bytes that are neither text nor of a known format are never decoded as something."""
    with pytest.raises(error, match=words) as refusal:
        detect("a.bin", None, raw)
    assert type(refusal.value) is error
    assert refusal.value.remedy


def test_text_is_decoded_without_its_mark() -> None:
    """UTF-8 with and without a mark, and UTF-16 with one, give the same text."""
    encoded = ["é\n".encode(encoding) for encoding in ("utf-8", "utf-8-sig", "utf-16")]
    assert [decode(raw) for raw in encoded] == ["é\n"] * 3


@pytest.mark.parametrize(
    ("uri", "head", "passes"),
    [
        ("a.pdf", PDF, True),
        ("a", PDF, True),
        ("a.docx", DOCX, True),
        ("a", DOCX, True),
        ("a.zip", SLACK, True),
        ("a.jar", zip_of({"META-INF/MANIFEST.MF": ""}), False),
        ("a.xls", compound_file("Workbook"), True),
        ("a.doc", compound_file("WordDocument"), True),
        ("a.msi", compound_file("Contents"), False),
        ("a.html", b"<p>caf\xe9</p>", True),
        ("a.html", "<p>café".encode()[:-1], False),
        ("a.py", b"x = 1", False),
        ("a.png", b"\x89PNG\r\n\x1a\n\0", False),
    ],
)
def test_sources_let_known_binary_files_through(uri: str, head: bytes, passes: bool) -> None:
    """A source publishes a binary file if an extractor may read it, or can say why not."""
    assert is_known_binary(uri, head) is passes


@pytest.mark.parametrize(
    ("uri", "is_binary"),
    [("a/B.PDF", True), ("a.doc", True), ("export.zip", True), ("a.html", False), ("a", False)],
)
def test_names_of_binary_files(uri: str, is_binary: bool) -> None:
    """The suffix says which limit of size holds, before the file is read."""
    assert has_binary_name(uri) is is_binary


def test_damaged_containers_give_typed_errors() -> None:
    """Any truncation or flipped byte of a container is detected or refused, never a crash."""
    random = Random(13)
    for raw in (DOCX, SLACK, compound_file("Workbook"), PDF, NOTEBOOK.encode()):
        for _ in range(200):
            damaged = bytearray(raw[: random.randrange(len(raw)) + 1])
            for _ in range(random.randrange(4)):
                damaged[random.randrange(len(damaged))] = random.randrange(256)
            try:
                detection = detect("a.bin", None, bytes(damaged))
            except Poison:
                continue
            assert detection.kind in {"pdf", "word", "conversation", "sheet", "notebook", "text"}

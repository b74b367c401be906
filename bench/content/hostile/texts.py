"""Hostile documents that are written as text, or that claim to be."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterator

from bench.content.hostile.containers import zipped
from bench.content.hostile.originals import ARCHIVES, TEXTS, document_pdf

__all__ = ["texts"]

_DEPTH = 50_000
_REGEX = "(a+)+$ " + "a" * 5_000 + "! https://" + "a." * 3_000 + " " + "-" * 5_000


def texts() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file; the name ends in its suffix."""
    for name, text in (
        *_pages(),
        *_descriptions(),
        *_notebooks(),
        *_chats(),
        *_mails(),
        *_values(),
        *_sources(),
    ):
        yield name, text.encode(errors="surrogatepass")
    yield from _encodings()
    yield from _lies()


def _pages() -> Iterator[tuple[str, str]]:
    wide = '<td colspan="999999999" rowspan="999999999">x'
    grid = '<tr><td colspan="1000" rowspan="1000">x' * 300
    for name, body in (
        ("deep-boxes", "<div>" * _DEPTH + "x"),
        ("deep-lists", "<ul><li>" * 5_000 + "x"),
        ("deep-quotes", "<blockquote>" * 5_000 + "<p>x"),
        ("deep-tables", "<table><tr><td>" * 2_000 + "x"),
        ("deep-inline", "<b><i><a href=x>" * 10_000 + "x"),
        ("elements", "<i>x</i>" * 130_000),
        ("wide-cells", f"<table><tr>{wide}<tr>{wide}</table>"),
        ("grid", f"<table>{grid}</table>"),
        ("attributes", "<p " + " ".join(f"a{n}=b" for n in range(30_000)) + ">x"),
        ("classes", "<div class='" + "share-related " * 9_000 + "'>x</div>" * 50),
        ("comment", "<p>x</p><!--" + "-" * 90_000),
        ("entities", "&#1114112;&#xD800;&#0;&amp" * 9_000),
        ("tags", "<" * 90_000),
        ("closed", "</div>" * 90_000),
        ("mismatched", "<p><table><b><tr></i></p>" * 5_000),
        ("fences", "<pre>" + "`" * 90_000 + "</pre>"),
        ("foreign", "<svg><math><template>" * 3_000 + "x"),
        ("options", "<select>" + "<option>x" * 30_000),
        ("script", "<script>" + "</scrip" * 20_000),
        ("regex", f"<p>{_REGEX}"),
    ):
        yield f"{name}.html", f"<!doctype html><html><body>{body}"


def _descriptions() -> Iterator[tuple[str, str]]:
    def api(**parts: object) -> str:
        return json.dumps({"openapi": "3.0.0", "info": {"title": "A"}, "paths": {}, **parts})

    def schemas(**parts: object) -> dict[str, object]:
        return {"schemas": parts}

    def reference(name: str) -> dict[str, str]:
        return {"$ref": f"#/components/schemas/{name}"}

    get = {"responses": {"200": {"description": "x", **reference("A")}}, "summary": "Read"}
    circle = schemas(A=reference("B"), B={"allOf": [reference("A"), reference("B")]})
    items = schemas(A={"type": "array", "items": reference("A")}, B={"oneOf": [reference("A")]})
    properties = {f"p{n}": reference("A") for n in range(20_000)}
    for name, text in (
        ("circle", api(components=circle, paths={"/a": {"get": get}})),
        ("items-of-itself", api(components=items, paths={"/a": {"get": get}})),
        ("path-of-itself", api(paths={"/a": {"$ref": "#/paths/~1a", "get": get}})),
        ("outside", api(paths={"/a": {"$ref": "file:///etc/passwd"}})),
        ("properties", api(components=schemas(A={"type": "object", "properties": properties}))),
        ("operations", api(paths={f"/{n}": {"get": get} for n in range(1_500)})),
        ("paths-are-a-list", api(paths=[1, {"get": get}], components="x")),
        (
            "methods-are-texts",
            api(paths={"/a": {"get": "x", "parameters": 7}, "/b": [], "/c": None}),
        ),
        (
            "texts-are-numbers",
            api(
                info=[1],
                tags=7,
                paths={
                    "/a": {
                        "get": {
                            "summary": {"a": 1},
                            "tags": 7,
                            "parameters": [None, 1, {"name": []}],
                            "responses": [1],
                            "security": 9,
                        }
                    }
                },
            ),
        ),
        ("deep", '{"openapi": "3.0.0", "paths": ' + '{"a":' * 20_000),
        ("deep-list", '{"openapi": "3.0.0", "paths": ' + "[" * _DEPTH),
        (
            "numbers",
            '{"openapi": "3.0.0", "info": {"version": ' + "9" * 9_000 + '}, "paths": {"/": '
            '{"get": {"responses": {"200": {"description": NaN, "x": 1e999}}}}}}',
        ),
        (
            "surrogates",
            (
                '{"openapi": "3.0.0", "info": {"title": "\\ud800"}, "paths": {"/\\udfff": '
                '{"get": {"summary": "\\ud83d"}}}}'
            ),
        ),
    ):
        yield f"openapi-{name}.json", text
    head = "openapi: 3.0.0\ninfo: {title: A}\n"
    laughs = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    for name, text in (
        ("laughs", f"{head}l0: &l0 [lol]\n{laughs}paths: {{/a: {{get: *l29}}}}\n"),
        ("anchor-of-itself", f"{head}paths: &a\n  /a: *a\n  /b: {{get: *a}}\n"),
        ("merge-of-itself", f"{head}x: &x {{<<: *x}}\npaths: {{<<: *x}}\n"),
        ("keys", f"{head}paths:\n  ? [a, b]\n  : 1\n  2026-01-01: {{get: 1}}\n  1: {{}}\n"),
        ("tags", f"{head}paths: !!python/object/apply:os.system [echo]\n"),
        ("tabs", f"{head}paths:\n\t/a:\n\t\tget: 1\n"),
        ("deep", f"{head}paths: {'{a: ' * 5_000}"),
        ("deep-lines", head + "paths:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 1_200))),
        ("many", f"{head}---\n" * 2_000),
        ("binary", f"{head}paths: !!binary x\nx: !!float y\nd: !!timestamp z\n"),
    ):
        yield f"openapi-{name}.yaml", text


def _notebooks() -> Iterator[tuple[str, str]]:
    image = base64.b64encode(b"\x89PNG" * 150_000).decode()
    output = {"output_type": "display_data", "data": {"image/png": image, "text/plain": ["x"]}}
    colours = {"output_type": "stream", "text": "\x1b[" * 50_000 + "\x1b[31;" * 5_000}
    for name, cells in (
        ("cells-are-numbers", [1, None, "x", [], {"cell_type": 7, "source": {"a": 1}}]),
        ("sources-are-numbers", [{"cell_type": "code", "source": [1, None], "outputs": 7}]),
        ("outputs", [{"cell_type": "code", "source": "x", "outputs": [output, 7, colours] * 2}]),
        ("many-outputs", [{"cell_type": "code", "source": "x", "outputs": [{}] * 50_000}]),
        ("cells", [{"cell_type": "markdown", "source": "x"}] * 3_000),
        ("links", [{"cell_type": "markdown", "source": "![x](data:image/png;base64," * 9_000}]),
        ("surrogates", [{"cell_type": "markdown", "source": "\ud800 \udfff"}]),
    ):
        yield f"{name}.ipynb", json.dumps({"nbformat": 4, "metadata": [], "cells": cells})
    yield "sheets.ipynb", '{"nbformat": 3, "worksheets": [{"cells": [{"cell_type": 1}]}, 7, {}]}'
    yield "deep.ipynb", '{"nbformat": 4, "cells": [{"cell_type":' + "[" * _DEPTH
    yield (
        "language.ipynb",
        json.dumps(
            {
                "nbformat": 4,
                "metadata": {"kernelspec": {"language": "```\n# x"}, "language_info": 1},
                "cells": [{"cell_type": "code", "source": "x"}],
            }
        ),
    )


def _chats() -> Iterator[tuple[str, str]]:
    nodes = {
        str(n): {
            "id": str(n),
            "parent": str((n + 1) % 500),
            "children": [str((n - 1) % 500)],
            "message": {"author": {"role": "user"}, "content": {"parts": ["x", 7, None]}},
        }
        for n in range(500)
    }
    yield "nodes-in-a-circle.json", json.dumps([{"title": "x", "mapping": nodes}])
    odd = [
        {"role": "user", "content": part} for part in (None, 7, [], [7], [{"text": 7}], {"a": 1})
    ]
    yield "odd-contents.json", json.dumps(odd)
    times: tuple[object, ...] = (1e300, -1e300, "x", None, [], 10**40, True)
    chats = [{"chat_messages": [{"sender": "human", "text": "x", "created_at": t}]} for t in times]
    yield "odd-times.json", json.dumps(chats)
    slack = [{"type": "message", "ts": f"{n}", "user": [], "text": {}} for n in (1, -1, 10**30)]
    yield "odd-messages.json", json.dumps(slack)
    yield "deep-content.json", '[{"role": "user", "content": ' + '[{"text": ' * 20_000
    yield "broken-lines.jsonl", TEXTS["jsonl"] * 500 + '{"role": ' + "{" * 9_000
    cue = "{}:{}:{}.{} --> 99999999:99:99.999\n<v {}>x\n\n"
    yield "times.vtt", "WEBVTT\n\n" + cue.format(99, 99, 99, 999, "A" * 9_000) * 20
    yield "cues.vtt", "WEBVTT\n\n" + "00:01.000 --> 00:02.000\n<v A>x\n\n" * 9_000
    yield "marks.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\n" + "<v " * 30_000
    yield "numbers.srt", "1\n00:00:01,000 --> 00:00:02,000\nx\n\n" * 9_000 + "9" * 9_000


def _mails() -> Iterator[tuple[str, str]]:
    def mail(headers: str, body: str = "x") -> str:
        return f"From: a@example.org\nSubject: Weir\nMIME-Version: 1.0\n{headers}\n\n{body}\n"

    def multipart(body: str, boundary: str = "b") -> str:
        return mail(f'Content-Type: multipart/mixed; boundary="{boundary}"', body)

    part = "--b\nContent-Type: text/plain\n\nx\n"
    itself = TEXTS["eml"]
    for _ in range(30):
        itself = mail("Content-Type: message/rfc822", itself)
    deep = "x"
    for number in range(300):
        kind = f'Content-Type: multipart/mixed; boundary="b{number}"'
        deep = f"{kind}\n\n--b{number}\n{deep}\n--b{number}--"
    for name, text in (
        ("parts", multipart(part * 10_000 + "--b--")),
        ("deep-parts", mail(deep)),
        ("mail-in-mail", itself),
        ("no-boundary", multipart(part, "")),
        ("open-boundary", multipart(part * 3)),
        ("long-header", mail("X: " + "a" * 500_000)),
        ("folded-header", mail("X: a" + "\n b" * 20_000)),
        ("headers", mail("\n".join(f"X{n}: y" for n in range(20_000)))),
        ("words", mail("Subject: " + "=?utf-8?q?=41?= " * 5_000)),
        ("bad-words", mail("Subject: " + "=?utf-7?b?" * 5_000)),
        ("addresses", mail("To: " + "<" * 20_000)),
        ("comments", mail("To: " + "(" * 20_000)),
        ("quotes", mail("To: " + '"\\' * 20_000)),
        ("groups", mail("To: " + "a:b@c;," * 5_000)),
        ("references", mail("References: " + "<a@b> " * 20_000)),
        ("date", mail("Date: Mon, 99 Xxx 99999999 99:99:99 +9999")),
        ("charset", mail("Content-Type: text/plain; charset=unicode_escape", "\\ud800")),
        ("codec", mail("Content-Type: text/plain; charset=zlib", "x")),
        ("no-charset", mail('Content-Type: text/plain; charset="\0"', "x")),
        ("transfer", mail("Content-Transfer-Encoding: x-uuencode", "begin 666 x\n" + "M" * 9_000)),
        ("base64", mail("Content-Transfer-Encoding: base64", "=" * 90_000)),
        ("quoted", mail("Content-Transfer-Encoding: quoted-printable", "=4" * 90_000)),
        (
            "name",
            mail(
                "Content-Disposition: attachment; "
                + " ".join(f"filename*{n}*=utf-8''x;" for n in (0, 999_999_999, -1))
            ),
        ),
        ("parameters", mail("Content-Type: text/plain; " + "a=b; " * 20_000)),
        ("replies", mail("", "> " * 20_000 + "\n" + ">" * 50_000)),
        ("page", mail("Content-Type: text/html", "<div>" * 20_000)),
    ):
        yield f"{name}.eml", text
    packed = base64.b64encode(zipped(ARCHIVES["docx"])).decode()
    attached = (
        "--b\nContent-Type: application/zip\nContent-Transfer-Encoding: base64\n"
        f"Content-Disposition: attachment; filename=a.docx\n\n{packed}\n"
    )
    yield "attached.eml", multipart(attached * 300 + "--b--")
    ring = [
        f"From a Mon Mar  2 10:14:00 2026\nFrom: a@b\nMessage-ID: <{n}@x>\n"
        f"In-Reply-To: <{(n + 1) % 800}@x>\nSubject: s\n\nx\n"
        for n in range(800)
    ]
    yield "ring.mbox", "\n".join(ring)
    yield "starts.mbox", "From a\n" * 60_000


def _values() -> Iterator[tuple[str, str]]:
    yield "million-cells.csv", ("1," * 999 + "1\n") * 1_000
    yield "quote.csv", 'a,b\n"' + "x,y\n" * 60_000
    yield "quotes.csv", '"' * 150_000
    yield "field.csv", "a,b\n" + "x" * 200_000 + ",y\n"
    yield "columns.csv", ",".join(f"c{n}" for n in range(20_000)) + "\n" + "1," * 19_999 + "1\n"
    yield "delimiters.csv", ",;\t|:" * 30_000
    yield "empty-rows.csv", "\n" * 200_000
    yield "bars.tsv", "a|b\t|\\|\n" * 5_000
    yield "ragged.csv", "\n".join("x," * (n % 97) for n in range(3_000))
    yield "sniffed.csv", "\"a'" * 2_000 + ",'b\"" * 2_000


def _sources() -> Iterator[tuple[str, str]]:
    yield "regex.md", _REGEX
    yield "links.md", "[a](" * 10_000
    yield "images.md", "![" * 20_000
    yield "emphasis.md", "*_" * 25_000
    yield "quotes.md", "> " * 5_000 + "x"
    yield "fences.md", "".join("`" * n + "\n" for n in range(3, 600))
    yield "table.md", "|" * _DEPTH + "\n" + "-|" * _DEPTH
    yield "headings.md", "\n".join("#" * (n % 7) + " x" for n in range(3_000))
    yield "front.md", "---\n" + "a: &a [*a]\n" * 2_000
    yield "directives.rst", ".. a::\n" + "   .. b::\n" * 5_000
    yield "underlines.rst", "x\n=\n" * 5_000
    yield "brackets.py", "(" * _DEPTH
    yield "blocks.js", "class A { " * 9_000
    yield "sum.c", "x = 1" + "+1" * 30_000 + ";\n"
    yield "text.py", '"""' + "x\n" * 20_000
    yield "here.sh", "<<EOF\n" * 9_000
    yield "marks.txt", "e" + "\u0301" * 50_000
    yield "controls.txt", "".join(map(chr, range(1, 160))) * 200 + "\u202e\u2066" * 5_000
    yield "line.txt", "x" * 500_000
    yield "letters.txt", "\u4e00" * 60_000


def _encodings() -> Iterator[tuple[str, bytes]]:
    text = TEXTS["html"]
    yield "utf-16.html", text.replace("<head>", "<head><meta charset=utf-8>").encode("utf-16")
    yield "no-such-charset.html", text.replace("<head>", "<head><meta charset=x-no>").encode()
    yield "utf-7.html", text.replace("<head>", "<head><meta charset=utf-7>").encode("utf-7")
    yield "zeros.html", text.replace("w", "\0").encode()
    yield "marks.md", codecs.BOM_UTF8 * 3 + TEXTS["md"].encode()
    yield "utf-32.txt", "They slow the water".encode("utf-32")
    yield "surrogates.txt", codecs.BOM_UTF16_LE + b"\x00\xd8" * 50
    yield "latin-1.md", "Wehre bremsen fl\xfcsse".encode("latin-1")
    yield "zeros.py", b"x = '\0'\n"
    yield "zeros.csv", b"a,b\n\0,\0\n"
    yield "utf-16.csv", TEXTS["csv"].encode("utf-16")
    yield "odd.vtt", codecs.BOM_UTF16_BE + b"\0W\0E\0B\0V\0T\0T\0"
    yield "latin-1.eml", TEXTS["eml"].replace("crack", "R\xfcss").encode("latin-1")


def _lies() -> Iterator[tuple[str, bytes]]:
    """Yield documents under the name of another format."""
    book, page = zipped(ARCHIVES["epub"]), TEXTS["html"].encode()
    image = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9
    for suffix in ("pdf", "docx", "xlsx", "epub", "html", "ipynb", "eml", "csv", "py"):
        yield f"image.{suffix}", image
        yield f"empty.{suffix}", b""
    for name, raw in (("book", book), ("page", page), ("paper", document_pdf())):
        for suffix in ("pdf", "pptx", "html", "csv", "json"):
            yield f"{name}.{suffix}", raw

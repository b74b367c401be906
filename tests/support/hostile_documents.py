"""Documents that break parsers (500): each bomb in a file of each language."""

from __future__ import annotations

import codecs
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from tests.support.hostile_values import CONTROLS, INJECTIONS

__all__ = ["HostileDocument", "hostile_documents"]

Bomb = Callable[[str, int], bytes]
"""Function that makes the content of a file, by its suffix and approximate size in characters."""

_DEPTH = 50_000
_SHORT = 2_000

_SUFFIXES = (
    *("py", "js", "ts", "tsx", "java", "c", "cpp", "cs", "go", "rs", "rb", "php", "sh"),
    *("md", "rst", "txt", "json", "yaml", "xml", "pdf"),
)


@dataclass(frozen=True)
class HostileDocument:
    """Name and bytes of a file."""

    name: str
    raw: bytes


def _openings(bracket: str) -> Bomb:
    return lambda _, size: (bracket * size).encode()


def _nested(suffix: str, size: int) -> bytes:
    opening, closing = ("[", "]") if suffix in {"json", "yaml", "md"} else ("(", ")")
    return f"x = {opening * size}1{closing * size}\n".encode()


def _deep_blocks(suffix: str, size: int) -> bytes:
    """Nested blocks of the language, as deep as its syntax allows."""
    if suffix in {"py", "yaml"}:
        step = "if a:" if suffix == "py" else "a:"
        return "".join(f"{' ' * depth}{step}\n" for depth in range(size // 80)).encode()
    block = {
        "json": '{"a":',
        "xml": "<a>",
        "md": "> - ",
        "rst": "* ",
        "sh": "if true; then ",
        "rb": "if a then ",
        "rs": "mod a { ",
        "go": "func() { ",
    }.get(suffix, "class A { ")
    return (block * (size // 5)).encode()


def _chain(operator: str) -> Bomb:
    return lambda _, size: f"x = 1{operator * (size // 3)};\n".encode()


def _unclosed(opening: str) -> Bomb:
    return lambda _, size: (opening + "a b c\n" * (size // 15)).encode()


def _long_line(suffix: str, size: int) -> bytes:
    return ("value" if suffix != "txt" else "\u4e00").encode() * size


def _zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 2**24)
    return buffer.getvalue()


def _pdf_bomb() -> bytes:
    stream = zlib.compress(b"(x) Tj " * 2**18)
    head = b"%PDF-1.4\n1 0 obj<</Length 1/Filter[" + b"/FlateDecode" * 20 + b"]>>stream\n"
    return head + stream + b"\nendstream endobj\n" + b"[" * _DEPTH


def _xml_bomb() -> bytes:
    lines = [f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 20)]
    return f'<!DOCTYPE x [<!ENTITY l0 "ha">{"".join(lines)}]><x>&l19;</x>'.encode()


def _yaml_bomb() -> bytes:
    lines = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30)]
    return ("l0: &l0 [lol]\n" + "\n".join(lines) + "\n").encode()


def _with(raw: bytes) -> Bomb:
    return lambda suffix, _: b"def f():\n    pass\n" + raw + f"\n// the end of {suffix}\n".encode()


_REGEX_BOMB = "(a+)+$ " + "a" * 5_000 + "! https://" + "a." * 3_000 + " " + "-" * 5_000
_ZALGO = "".join("e" + "\u0301" * 200 for _ in range(100))

_BOMBS: tuple[Bomb, ...] = (
    _openings("("),
    _openings("{"),
    _openings("<"),
    _nested,
    _deep_blocks,
    _chain("+1"),
    _chain(".a()"),
    _unclosed('"'),
    _unclosed("/*"),
    _unclosed("<<EOF\n"),
    _unclosed("```\n"),
    _long_line,
    _with(b"a\x00b"),
    _with("\ud800".encode(errors="surrogatepass")),
    _with(b"caf\xe9 \xff\xfe"),
    lambda suffix, _: codecs.BOM_UTF8 * 3 + f"# {suffix}\n".encode(),
    lambda suffix, _: f"# \u0000 wide {suffix}\n".encode("utf-16"),
    lambda _, __: codecs.BOM_UTF16_LE + b"\x00\xd8" * 10,
    lambda _, __: b"# -*- coding: unicode_escape -*-\n\\ud800\xff\n",
    _with("".join(CONTROLS).encode()),
    _with("\n".join(INJECTIONS).encode()),
    _with(_REGEX_BOMB.encode()),
    _with(_ZALGO.encode()),
    lambda _, size: b"a\r" * (size // 10) + b"\x0c\x0b\x1c\x1d\x85",
    lambda _, size: b"\n" * size,
)


def hostile_documents(count: int = 500) -> Iterator[HostileDocument]:
    """Every bomb in every kind of file, and special bombs for some kinds."""
    special = [
        HostileDocument("ten-megabytes.txt", b"x" * 10 * 2**20),
        HostileDocument("bomb.zip", _zip_bomb()),
        HostileDocument("bomb.pdf", _pdf_bomb()),
        HostileDocument("laughs.xml", _xml_bomb()),
        HostileDocument("laughs.yaml", _yaml_bomb()),
        HostileDocument("openapi.json", b'{"openapi": "3.' + b"0" * 5_000 + b'", "paths":' * 300),
        HostileDocument("table.md", b"|" * _DEPTH + b"\n" + b"-|" * _DEPTH),
        HostileDocument("links.md", b"[a](" * 10_000),
        HostileDocument("emphasis.md", b"*_" * 25_000),
        HostileDocument("directive.rst", b".. a::\n" + b"   .. b::\n" * 5_000),
    ]
    made = (
        HostileDocument(f"{number}-{suffix}.{suffix}", bomb(suffix, _size(number, place)))
        for number, bomb in enumerate(_BOMBS)
        for place, suffix in enumerate(_SUFFIXES)
    )
    return islice((*special, *made), count)


def _size(bomb: int, suffix: int) -> int:
    """Size of a bomb: large in two kinds of files, and small in the others to save time."""
    return _DEPTH if (bomb - suffix) % (len(_SUFFIXES) // 2) == 0 else _SHORT

"""Character sets of pages and messages: their names, and decoding that never fails."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

__all__ = ["Decoded", "codec_of", "declared_in", "decode"]

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CODECS = {
    # browsers read these three as windows-1252, a superset
    **dict.fromkeys(
        ("ascii", "us-ascii", "iso-8859-1", "latin1", "latin-1", "ansi_x3.4-1968"), "cp1252"
    ),
    **dict.fromkeys(("utf-8", "utf8", "unicode-1-1-utf-8"), "utf-8"),
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16-le", "ucs-2", "unicode"), "utf-16-le"),
    **dict.fromkeys(("utf-16be", "utf-16-be"), "utf-16-be"),
    **{f"windows-{page}": f"cp{page}" for page in (874, *range(1250, 1259))},
    **{f"cp{page}": f"cp{page}" for page in (866, *range(1250, 1259))},
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (*range(2, 12), 13, 14, 15, 16)},
    "iso-8859-9": "cp1254",
    "iso-8859-8-i": "iso8859-8",
    "latin2": "iso8859-2",
    "tis-620": "cp874",
    "ibm866": "cp866",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "macintosh": "mac-roman",
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "x-gbk", "chinese"), "gb18030"),
    **dict.fromkeys(("big5", "big5-hkscs", "x-x-big5"), "big5hkscs"),
    **dict.fromkeys(
        ("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "ms_kanji"), "cp932"
    ),
    "euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp_2",
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601", "korean"), "cp949"),
}
"""Python's codec for each name of a character set.

Python knows more names, but some of its codecs interpret the bytes or expand them.
"""
_FALLBACK = "cp1252"
_META = re.compile(rb"<meta[^>]{1,200}?charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml[^>]{1,200}?encoding\s*=\s*[\"']([\w.:-]{2,40})[\"']")
_META_BYTES = 4_096


class Decoded(NamedTuple):
    """Decoded text. ``doubtful`` is true if the bytes do not fit the character set."""

    text: str
    codec: str
    doubtful: bool


def codec_of(name: str | None) -> str | None:
    """Return Python's codec for a character set. Returns None for an unknown one."""
    return _CODECS.get((name or "").strip().strip("\"'").lower())


def declared_in(raw: bytes) -> str | None:
    """Return the character set that a page names in its first 4 KiB. Returns None without one."""
    head = raw[:_META_BYTES]
    match = _XML.match(head) or _META.search(head)
    return match[1].decode("ascii") if match else None


def decode(raw: bytes, charset: str | None) -> Decoded:
    """Decode by a byte order mark, by ``charset``, as UTF-8, or as a browser guesses.

    Bytes that do not fit the declared character set become U+FFFD. Without a declared one, bytes
    that are not UTF-8 are read as windows-1252.
    """
    for mark, codec in _BOMS:
        if raw.startswith(mark):
            return _decode_as(raw[len(mark) :], codec)
    declared = codec_of(charset)
    if declared is None or declared == "utf-8":
        text = _strictly(raw, "utf-8")
        if text is not None:
            return Decoded(text, "utf-8", doubtful=False)
    if declared is None:
        return Decoded(raw.decode(_FALLBACK, "replace"), _FALLBACK, doubtful=True)
    if declared.startswith("utf-16") and b"\0" not in raw[:_META_BYTES]:
        # a page that was read as ASCII up to the name is not UTF-16
        return decode(raw, None)
    return _decode_as(raw, declared)


def _decode_as(raw: bytes, codec: str) -> Decoded:
    text = _strictly(raw, codec)
    if text is not None:
        return Decoded(text, codec, doubtful=False)
    return Decoded(raw.decode(codec, "replace"), codec, doubtful=True)


def _strictly(raw: bytes, codec: str) -> str | None:
    try:
        return raw.decode(codec)
    except UnicodeError:
        return None

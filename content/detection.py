"""Detection of the kind and the language of a document, and decoding of text."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from content.containers import COMPOUND_FILE, PDF, ZIP, compound_file_kind, zip_kind
from content.languages import BY_INTERPRETER, BY_MEDIA_TYPE, BY_NAME, BY_SUFFIX
from content.registry import EXTRACTORS
from content.text_formats import text_format
from runtime.errors import UnsupportedContent

__all__ = [
    "Detection",
    "SizeLimits",
    "decode",
    "detect",
    "has_binary_name",
    "is_known_binary",
    "kind_of",
    "language_of",
    "may_be_binary",
]


@dataclass(frozen=True, slots=True)
class Detection:
    """Kind of a document, the grammar that fits if it is code, and contradictions on the way.

    ``text`` is the decoded content of a kind that is cut as it is. It is None for the others.
    """

    kind: str
    language: str | None = None
    warnings: tuple[str, ...] = ()
    text: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Most bytes of a text, and of a document that is not text."""

    text_bytes: int
    binary_bytes: int

    def within(self, most_bytes: int) -> SizeLimits:
        """Limits of which none is over ``most_bytes``."""
        return SizeLimits(min(self.text_bytes, most_bytes), min(self.binary_bytes, most_bytes))

    def of(self, uri: str) -> int:
        """Most bytes of the file with this uri."""
        return self.binary_bytes if has_binary_name(uri) else self.text_bytes


_CODE_WITHOUT_GRAMMAR = (
    *(".css", ".scss", ".less", ".html", ".htm", ".vue", ".svelte", ".xml", ".svg"),
    *(".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties"),
    *(".pl", ".pm", ".r", ".jl", ".hs", ".ml", ".erl", ".clj", ".zig", ".nim", ".vb", ".fs"),
    *(".pas", ".asm", ".s", ".cu", ".proto", ".graphql", ".graphqls", ".gql", ".cmake", ".mk"),
    *(".ps1", ".bat", ".cmd", ".zsh", ".fish", ".awk", ".el", ".lisp", ".scm", ".pyx"),
)

_KIND_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys(_CODE_WITHOUT_GRAMMAR, "code"),  # first, so that any row below takes precedence
    **dict.fromkeys(BY_SUFFIX, "code"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".mkd"), "markdown"),
    **dict.fromkeys((".rst", ".rest"), "rst"),
    **dict.fromkeys((".txt", ".text", ".log", ".csv", ".tsv", ".adoc", ".org"), "text"),
    ".pdf": "pdf",
}
"""Kinds of documents whose content is text; formats that are rendered follow below."""

_BINARY_KIND_BY_SUFFIX: dict[str, str] = {
    ".pdf": "pdf",
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), "word"),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx", ".ppsm", ".potx"), "slides"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xlsb", ".xls", ".ods"), "sheet"),
    ".epub": "book",
}
_LEGACY_SUFFIXES = frozenset({".doc", ".dot", ".ppt", ".pps", ".msg"})
"""These are refused with a remedy, which is more than a source that skips them reports."""

_BINARY_SUFFIXES = (*_BINARY_KIND_BY_SUFFIX, *_LEGACY_SUFFIXES, ".zip")

_TEXT_FORMAT_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv"), "sheet"),
    **dict.fromkeys((".vtt", ".srt"), "conversation"),
    ".ipynb": "notebook",
}

_CODE_NAMES = frozenset({"makefile", "jenkinsfile", "justfile", "cmakelists.txt"})
_OBJECTIVE_C_SUFFIXES = frozenset({".h", ".m"})
_OBJECTIVE_C = re.compile(
    r"^[ \t]*(?:@(?:interface|implementation|protocol|class|import|end)\b|#[ \t]*import\b)",
    re.MULTILINE,
)
_C_LINE = re.compile(r"^[ \t]*(?:#[ \t]*(?:include|define|if|pragma)\b|//|/\*)", re.MULTILINE)

_KIND_BY_MEDIA_TYPE = {
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/x-rst": "rst",
    "text/prs.fallenstein.rst": "rst",
    "application/pdf": "pdf",
    "application/vnd.oai.openapi": "openapi",
    "application/vnd.oai.openapi+json": "openapi",
}

_OPEN_XML = "application/vnd.openxmlformats-officedocument"
_RENDERED_KIND_BY_MEDIA_TYPE = {
    "application/pdf": "pdf",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/vnd.oai.openapi": "openapi",
    "application/vnd.oai.openapi+json": "openapi",
    "application/x-ipynb+json": "notebook",
    f"{_OPEN_XML}.wordprocessingml.document": "word",
    f"{_OPEN_XML}.presentationml.presentation": "slides",
    f"{_OPEN_XML}.presentationml.slideshow": "slides",
    f"{_OPEN_XML}.spreadsheetml.sheet": "sheet",
    "application/vnd.ms-excel": "sheet",
    "application/vnd.ms-excel.sheet.macroenabled.12": "sheet",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": "sheet",
    "application/vnd.oasis.opendocument.spreadsheet": "sheet",
    "text/csv": "sheet",
    "text/tab-separated-values": "sheet",
    "text/vtt": "conversation",
    "application/x-subrip": "conversation",
    "message/rfc822": "email",
    "application/mbox": "email",
    "application/epub+zip": "book",
}

_SHEBANG = re.compile(
    r"\ufeff?#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?([a-z]+)[\d.]*(?=\s|$)"
)
_OPENAPI = re.compile(r"^\s{0,4}\"?(?:openapi|swagger)\"?\s*:\s*[\"']?[23]\.", re.MULTILINE)
_OPENAPI_FAR = re.compile(
    r"^(?: {0,4}|\t)\"(?:openapi|swagger)\"\s*:\s*\"[23]\."  # JSON, one level deep
    r"|[{,]\"(?:openapi|swagger)\":\"[23]\."  # JSON without blanks
    r"|^[\"']?(?:openapi|swagger)[\"']?:\s*[\"']?[23]\.",  # YAML
    re.MULTILINE,
)
_OPENAPI_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_OPENAPI_NAMES = ("openapi", "swagger", "api")
_FIRST_CHARACTERS = 2_000

_UNDECIDED_SUFFIXES = frozenset(
    {".json", ".jsonl", ".ndjson", ".xml", ".txt", ".text", ".log"}
    | _BINARY_KIND_BY_SUFFIX.keys()
    | _TEXT_FORMAT_BY_SUFFIX.keys()
)
"""The first characters decide about these names, and about names with any unknown suffix."""

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD_BYTES = 65_536
_PDF_HEAD_BYTES = 1_024
_PUBLISH_TEXT = "save it as text in UTF-8, or publish it in one of the formats that are read"

_FORMAT_NAMES = {
    "pdf": "a PDF document",
    "word": "a Word document",
    "slides": "slides",
    "sheet": "a spreadsheet",
    "book": "a book",
    "html": "HTML",
    "notebook": "a notebook",
    "conversation": "a conversation",
    "email": "an e-mail",
}


def detect(
    uri: str, media_type: str | None, content: str | bytes, kind: str | None = None
) -> Detection:
    """Detect the kind of a document: ``kind`` if it is given, else by its signs.

    The media type decides first, then the first bytes, the suffix of the name and the first
    characters. A media type or suffix of another binary format than the bytes have is only a
    warning.

    Raises:
        UnsupportedContent: the bytes are neither text nor of a known format, or they are an
            archive or an old Office document that is not read (``Encrypted``, ``LegacyFormat``,
            ``Damaged``).
        LimitExceeded: the bytes are a zip archive with too many members.
    """
    if kind is not None:
        return _as_text(uri, media_type, content, kind)
    raw = content if isinstance(content, bytes) else content[:_HEAD_BYTES].encode()
    suffix = _suffix(_path(uri))
    kind = _container_kind(raw, suffix)
    if kind is not None:
        return Detection(kind, None, _contradictions(kind, media_type, suffix))
    kind = _RENDERED_KIND_BY_MEDIA_TYPE.get(_essence(media_type))
    if kind is not None:
        return Detection(kind)
    if not _is_text_type(media_type):
        kind = _kind_by_first_characters(suffix, _head(raw))
        if kind is not None:
            return Detection(kind, None, _contradictions(kind, None, suffix))
        if suffix in _BINARY_KIND_BY_SUFFIX:
            return Detection(_BINARY_KIND_BY_SUFFIX[suffix])
    return _as_text(uri, media_type, content, None)


def _as_text(uri: str, media_type: str | None, content: str | bytes, kind: str | None) -> Detection:
    """Detection of a text: its kind, unless it is given, and its language."""
    if kind is not None and kind in EXTRACTORS:
        return Detection(kind)
    text = decode(content) if isinstance(content, bytes) else _checked(content)
    signs = text.removeprefix("\ufeff")
    kind = kind or kind_of(uri, media_type, signs)
    if kind in EXTRACTORS:
        return Detection(kind)
    return Detection(kind, language_of(uri, media_type, signs), text=text)


def may_be_binary(uri: str, media_type: str | None, kind: str | None) -> bool:
    """Return whether a document may be of a format that is extracted, by what is said of it."""
    if kind is not None:
        return kind in EXTRACTORS
    if _essence(media_type) in _RENDERED_KIND_BY_MEDIA_TYPE:
        return True
    suffix = _suffix(_path(uri))
    return suffix not in _KIND_BY_SUFFIX or suffix in _UNDECIDED_SUFFIXES


def kind_of(uri: str, media_type: str | None, content: str) -> str:
    """Kind of a text by media type, then file name, then ``#!``; the default is text.

    A JSON or YAML file with a top-level ``openapi`` or ``swagger`` version near its start, or
    anywhere if its name contains ``openapi``, ``swagger`` or ``api``, is an OpenAPI description.
    """
    kind = _KIND_BY_MEDIA_TYPE.get(_essence(media_type))
    if kind is not None:
        return kind
    path = _path(uri)
    suffix = path.suffix.lower()
    if suffix in _OPENAPI_SUFFIXES and _is_openapi(path.stem.lower(), content):
        return "openapi"
    if path.name.lower() in _CODE_NAMES or language_of(uri, media_type, content) is not None:
        return "code"
    return _KIND_BY_SUFFIX.get(suffix, "text")


def language_of(uri: str, media_type: str | None, content: str) -> str | None:
    """Name of the grammar for this document. Returns None if no grammar fits."""
    by_media_type = BY_MEDIA_TYPE.get(_essence(media_type))
    if by_media_type is not None:
        return by_media_type
    path = _path(uri)
    suffix = path.suffix.lower()
    if suffix in _OBJECTIVE_C_SUFFIXES:
        return _language_of_c(suffix, content)
    if suffix in _KIND_BY_SUFFIX:
        return BY_SUFFIX.get(suffix)
    names = (path.name.lower(), path.stem.lower())
    by_name = next((BY_NAME[name] for name in names if name in BY_NAME), None)
    return by_name or _interpreter(content)


def _language_of_c(suffix: str, content: str) -> str | None:
    """Language of a header, or of a ``.m``, which may as well be MATLAB."""
    if _OBJECTIVE_C.search(content):
        return "objc"
    if suffix == ".h":
        return BY_SUFFIX[suffix]
    return "objc" if _C_LINE.search(content) else None


def decode(raw: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark; the mark itself is dropped.

    Raises:
        UnsupportedContent: the bytes are in another encoding, or are not text.
    """
    try:
        text = raw.decode("utf-16" if raw.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnsupportedContent(
            f"the bytes are not text in UTF-8, at byte {error.start:,}, nor of a known format",
            _PUBLISH_TEXT,
        ) from None
    return _checked(text)


def _checked(text: str) -> str:
    if "\0" in text:
        raise UnsupportedContent(
            "the bytes contain zeros, so they are not text, and their format is unknown",
            _PUBLISH_TEXT,
        )
    return text


def has_binary_name(uri: str) -> bool:
    """Return whether a document is not text by its name, so that it may be larger than a text."""
    # a path is built only for the few such names: a source asks about each of its files
    is_candidate = uri.lower().rstrip("/.").endswith(_BINARY_SUFFIXES) or "://" in uri
    return is_candidate and _path(uri).suffix.lower() in _BINARY_SUFFIXES


def is_known_binary(uri: str, head: bytes) -> bool:
    """Return whether a source may publish a file that is not text in UTF-8.

    Args:
        uri: name of the file.
        head: first bytes of the file, 2 KiB or more if it has them.
    """
    suffix = _path(uri).suffix.lower()
    if _has_pdf_header(head, suffix):
        return True
    if head.startswith(COMPOUND_FILE):
        return suffix in _BINARY_KIND_BY_SUFFIX or suffix in _LEGACY_SUFFIXES
    if head.startswith(ZIP):
        return suffix in _BINARY_KIND_BY_SUFFIX or _KNOWN_MEMBER.search(head) is not None
    return suffix in _SELF_DESCRIBED and not _is_text(head)


_KNOWN_MEMBER = re.compile(
    rb"PK\x03\x04.{26}(?:mimetypeapplication/(?:epub\+zip|vnd\.oasis\.opendocument\.spreadsheet)"
    rb"|\[Content_Types\]\.xml"
    rb"|(?:[^/\0]{1,100}/)?(?:channels|groups|dms|mpims|conversations)\.json)",
    re.DOTALL,
)
_SELF_DESCRIBED = frozenset({".html", ".htm", ".xhtml", ".eml", ".mbox"})
"""Documents of these formats name their own encoding."""


def _container_kind(raw: bytes, suffix: str) -> str | None:
    if _has_pdf_header(raw[:_HEAD_BYTES], suffix):
        return "pdf"
    if raw.startswith(COMPOUND_FILE):
        return compound_file_kind(raw)
    return zip_kind(raw) if raw.startswith(ZIP) else None


def _has_pdf_header(head: bytes, suffix: str) -> bool:
    """Recognize a PDF, but not a text that mentions its header."""
    before, header, _ = head[:_PDF_HEAD_BYTES].partition(PDF)
    return bool(header) and (not before.strip() or suffix == ".pdf" or not _is_text(head))


def _is_text(head: bytes) -> bool:
    """Return whether the first bytes are UTF-8 without zeros; the last character may be cut."""
    try:
        return "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def _head(raw: bytes) -> str:
    head = raw[:_HEAD_BYTES]
    return head.decode("utf-16" if head.startswith(_UTF16) else "utf-8", "replace")


def _is_text_type(media_type: str | None) -> bool:
    """Return whether the media type decides for a kind of text."""
    essence = _essence(media_type)
    return essence in _KIND_BY_MEDIA_TYPE or essence in BY_MEDIA_TYPE


def _kind_by_first_characters(suffix: str, head: str) -> str | None:
    """Kind of a format that is written as text; names of source code decide for themselves."""
    if suffix in _KIND_BY_SUFFIX and suffix not in _UNDECIDED_SUFFIXES:
        return None
    return text_format(suffix, head) or _TEXT_FORMAT_BY_SUFFIX.get(suffix)


def _contradictions(kind: str, media_type: str | None, suffix: str) -> tuple[str, ...]:
    """Warnings about a media type or suffix of another format than the bytes have."""
    named = _FORMAT_NAMES.get(kind, kind)
    essence = _essence(media_type)
    by_type = _RENDERED_KIND_BY_MEDIA_TYPE.get(essence) or _KIND_BY_MEDIA_TYPE.get(essence)
    by_suffix = _BINARY_KIND_BY_SUFFIX.get(suffix) or _TEXT_FORMAT_BY_SUFFIX.get(suffix)
    if kind in _BINARY_KIND_BY_SUFFIX.values():
        by_suffix = by_suffix or _KIND_BY_SUFFIX.get(suffix)
    warnings = []
    if by_type not in (None, kind):
        warnings.append(f"the media type is {essence}, but the bytes are {named}")
    if by_suffix not in (None, kind):
        warnings.append(f"the name ends in {suffix}, but the bytes are {named}")
    return tuple(warnings)


def _is_openapi(name: str, content: str) -> bool:
    if _OPENAPI.search(content[:_FIRST_CHARACTERS]):
        return True
    named = any(word in name for word in _OPENAPI_NAMES)
    return named and _OPENAPI_FAR.search(content) is not None


def _essence(media_type: str | None) -> str:
    return (media_type or "").partition(";")[0].strip().lower()


def _path(uri: str) -> PurePosixPath:
    """Path part of a URI or a plain path; a URL loses its query and fragment."""
    if "://" not in uri:
        return PurePosixPath(uri)
    try:
        return PurePosixPath(urlsplit(uri).path)
    except ValueError:
        return PurePosixPath(uri)


_UNREAD_MAIL = re.compile(r"\d{9,11}\.(?:\d+(?:_\d+)*|(?:[A-Z#][0-9A-Fa-f]+)+)\..+")
"""Name of a message in ``new`` of a Maildir: time, number in that second, and host."""


def _suffix(path: PurePosixPath) -> str:
    """Suffix in lower case; empty for an unread message, whose name ends in that of a host."""
    return "" if _UNREAD_MAIL.fullmatch(path.name) else path.suffix.lower()


def _interpreter(content: str) -> str | None:
    match = _SHEBANG.match(content[:200])
    return BY_INTERPRETER.get(match[1]) if match else None

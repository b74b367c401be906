"""Detection of a document's kind and language, by its media type, its name, or its first line."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

__all__ = ["kind_of", "language_of"]

_LANGUAGE_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    ".tsx": "tsx",
    ".go": "go",
    ".java": "java",
    ".rs": "rust",
    ".c": "c",
    **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".ipp"), "cpp"),
    ".cs": "c_sharp",
    **dict.fromkeys((".rb", ".rake", ".gemspec"), "ruby"),
    **dict.fromkeys((".php", ".phtml"), "php"),
    **dict.fromkeys((".sh", ".bash"), "bash"),
}
"""A ``.h`` is parsed as C++, whose grammar accepts nearly all of C."""

_KIND_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys(_LANGUAGE_BY_SUFFIX, "code"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".mkd"), "markdown"),
    **dict.fromkeys((".rst", ".rest"), "rst"),
    **dict.fromkeys((".txt", ".text", ".log", ".csv", ".tsv", ".adoc", ".org"), "text"),
    ".pdf": "pdf",
    **dict.fromkeys(
        (
            *(".sql", ".css", ".scss", ".less", ".html", ".htm", ".vue", ".svelte", ".xml", ".svg"),
            *(".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties"),
            *(".kt", ".kts", ".swift", ".scala", ".lua", ".pl", ".pm", ".r", ".jl", ".hs", ".ml"),
            *(".ex", ".exs", ".erl", ".clj", ".dart", ".zig", ".nim", ".vb", ".fs", ".pas", ".asm"),
            *(".s", ".m", ".mm", ".cu", ".proto", ".graphql", ".tf", ".hcl", ".cmake", ".mk"),
            *(".ps1", ".bat", ".cmd", ".zsh", ".fish", ".awk", ".el", ".lisp", ".scm", ".pyx"),
        ),
        "code",
    ),
}

_CODE_NAMES = frozenset({"makefile", "dockerfile", "jenkinsfile", "justfile", "cmakelists.txt"})
_LANGUAGE_BY_NAME = {"rakefile": "ruby", "gemfile": "ruby"}

_KIND_BY_MEDIA_TYPE = {
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/x-rst": "rst",
    "text/prs.fallenstein.rst": "rst",
    "application/pdf": "pdf",
    "application/vnd.oai.openapi": "openapi",
    "application/vnd.oai.openapi+json": "openapi",
}

_LANGUAGE_BY_MEDIA_TYPE = {
    "text/x-python": "python",
    "application/x-python": "python",
    "text/javascript": "javascript",
    "application/javascript": "javascript",
    "application/typescript": "typescript",
    "text/x-go": "go",
    "text/x-java-source": "java",
    "text/x-java": "java",
    "text/rust": "rust",
    "text/x-rust": "rust",
    "text/x-c": "c",
    "text/x-c++": "cpp",
    "text/x-csharp": "c_sharp",
    "text/x-ruby": "ruby",
    "application/x-httpd-php": "php",
    "application/x-sh": "bash",
    "text/x-shellscript": "bash",
}

_LANGUAGE_BY_INTERPRETER = {
    "python": "python",
    "pypy": "python",
    "node": "javascript",
    "deno": "typescript",
    "ruby": "ruby",
    "php": "php",
    "sh": "bash",
    "bash": "bash",
    "dash": "bash",
    "ksh": "bash",
}

_SHEBANG = re.compile(
    r"\ufeff?#!\s*(?:\S*/)?(?:env\s+(?:-\S+\s+)*)?(?:\S*/)?([a-z]+)[\d.]*(?=\s|$)"
)
_OPENAPI = re.compile(r"^\s{0,4}\"?(?:openapi|swagger)\"?\s*:\s*[\"']?[23]\.", re.MULTILINE)
_OPENAPI_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
_FIRST_CHARACTERS = 2_000


def kind_of(uri: str, media_type: str | None, content: str) -> str:
    """Kind of content by media type, then file name, then ``#!``; the default is text.

    A JSON or YAML file with a top-level ``openapi`` or ``swagger`` version near its start is an
    OpenAPI description.
    """
    kind = _KIND_BY_MEDIA_TYPE.get(_essence(media_type))
    if kind is not None:
        return kind
    suffix = _path(uri).suffix.lower()
    if suffix in _OPENAPI_SUFFIXES and _OPENAPI.search(content[:_FIRST_CHARACTERS]):
        return "openapi"
    if _path(uri).name.lower() in _CODE_NAMES or language_of(uri, media_type, content) is not None:
        return "code"
    return _KIND_BY_SUFFIX.get(suffix, "text")


def language_of(uri: str, media_type: str | None, content: str) -> str | None:
    """Name of the grammar for this document. Returns None if no grammar fits."""
    by_media_type = _LANGUAGE_BY_MEDIA_TYPE.get(_essence(media_type))
    if by_media_type is not None:
        return by_media_type
    path = _path(uri)
    suffix = path.suffix.lower()
    if suffix in _KIND_BY_SUFFIX:
        return _LANGUAGE_BY_SUFFIX.get(suffix)
    return _LANGUAGE_BY_NAME.get(path.name.lower()) or _interpreter(content)


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


def _interpreter(content: str) -> str | None:
    match = _SHEBANG.match(content[:200])
    return _LANGUAGE_BY_INTERPRETER.get(match[1]) if match else None

"""Programming languages: their names, and the files that are written in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

__all__ = [
    "BY_INTERPRETER",
    "BY_MEDIA_TYPE",
    "BY_NAME",
    "BY_SUFFIX",
    "NAMES",
    "Files",
    "canonical",
    "canonical_or_same",
]

BY_SUFFIX: dict[str, str] = {
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
    **dict.fromkeys((".kt", ".kts"), "kotlin"),
    ".swift": "swift",
    **dict.fromkeys((".scala", ".sc", ".sbt"), "scala"),
    **dict.fromkeys((".lua", ".nse", ".rockspec"), "lua"),
    **dict.fromkeys((".ex", ".exs"), "elixir"),
    ".dart": "dart",
    **dict.fromkeys((".m", ".mm"), "objc"),
    **dict.fromkeys((".sql", ".ddl", ".pgsql"), "sql"),
    **dict.fromkeys((".tf", ".tfvars", ".hcl", ".nomad"), "hcl"),
    **dict.fromkeys((".dockerfile", ".containerfile"), "dockerfile"),
}
"""A ``.h`` is parsed as C++, whose grammar accepts nearly all of C, unless it is Objective-C."""

BY_NAME = {
    **dict.fromkeys(("rakefile", "gemfile"), "ruby"),
    **dict.fromkeys(("dockerfile", "containerfile"), "dockerfile"),
}
"""Languages by a file's name, or by its stem if the suffix is unknown, as in ``Dockerfile.dev``."""

BY_MEDIA_TYPE = {
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
    "text/x-kotlin": "kotlin",
    "text/x-swift": "swift",
    "text/x-scala": "scala",
    "text/x-lua": "lua",
    "text/x-elixir": "elixir",
    "application/vnd.dart": "dart",
    "text/x-dart": "dart",
    "text/x-objective-c": "objc",
    "application/sql": "sql",
    "text/x-sql": "sql",
    "text/x-dockerfile": "dockerfile",
}

BY_INTERPRETER = {
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
    "lua": "lua",
    "luajit": "lua",
    "elixir": "elixir",
    "scala": "scala",
    "swift": "swift",
    "kotlin": "kotlin",
    "dart": "dart",
}

_WITHOUT_GRAMMAR = {
    "assembly": (".asm", ".s"),
    "awk": (".awk",),
    "batch": (".bat", ".cmd"),
    "clojure": (".clj",),
    "cmake": (".cmake", "cmakelists.txt"),
    "css": (".css",),
    "cuda": (".cu",),
    "cython": (".pyx",),
    "elisp": (".el",),
    "erlang": (".erl",),
    "fish": (".fish",),
    "fsharp": (".fs",),
    "graphql": (".graphql", ".graphqls", ".gql"),
    "groovy": ("jenkinsfile",),
    "haskell": (".hs",),
    "ini": (".ini", ".cfg", ".conf", ".properties"),
    "json": (".json", ".jsonl"),
    "julia": (".jl",),
    "just": ("justfile",),
    "less": (".less",),
    "lisp": (".lisp",),
    "make": (".mk", "makefile"),
    "nim": (".nim",),
    "ocaml": (".ml",),
    "pascal": (".pas",),
    "perl": (".pl", ".pm"),
    "powershell": (".ps1",),
    "protobuf": (".proto",),
    "r": (".r",),
    "scheme": (".scm",),
    "scss": (".scss",),
    "svelte": (".svelte",),
    "toml": (".toml",),
    "vb": (".vb",),
    "vue": (".vue",),
    "xml": (".xml", ".svg"),
    "yaml": (".yaml", ".yml"),
    "zig": (".zig",),
    "zsh": (".zsh",),
}
"""Suffixes and names of files in languages that are cut by their lines."""

_SHARED = {
    "c": (".h",),
    "cpp": (".h",),
    "objc": (".h",),
    "typescript": (".tsx",),
}
"""Suffixes that a search for these languages includes, although they may be of another one."""

_ALIASES = {
    "assembly": ("asm", "nasm"),
    "bash": ("sh", "shell", "console", "shell-session"),
    "batch": ("bat", "cmd"),
    "c_sharp": ("c#", "cs", "csharp"),
    "clojure": ("clj",),
    "cpp": ("c++", "cc", "cxx"),
    "dockerfile": ("docker", "containerfile"),
    "elisp": ("emacs-lisp",),
    "elixir": ("ex", "exs"),
    "erlang": ("erl",),
    "fsharp": ("f#",),
    "go": ("golang",),
    "graphql": ("gql",),
    "haskell": ("hs",),
    "hcl": ("terraform", "tf"),
    "javascript": ("js", "jsx", "mjs", "node"),
    "json": ("jsonl", "json5"),
    "julia": ("jl",),
    "kotlin": ("kt",),
    "make": ("makefile", "mk"),
    "objc": ("objective-c", "objectivec"),
    "perl": ("pl",),
    "php": ("php3",),
    "powershell": ("ps1", "pwsh"),
    "protobuf": ("proto",),
    "python": ("py", "py3", "python3", "pycon"),
    "ruby": ("rb",),
    "rust": ("rs",),
    "sql": ("postgresql", "pgsql", "mysql"),
    "typescript": ("ts",),
    "yaml": ("yml",),
}
"""Other names that people write, also in the fences of code examples."""

_NAMES = {
    **{name: name for name in (*BY_SUFFIX.values(), *_WITHOUT_GRAMMAR)},
    **{alias: name for name, aliases in _ALIASES.items() for alias in aliases},
}
NAMES = frozenset(_NAMES.values())
"""Names under which languages are stored."""


def canonical(name: str) -> str:
    """Return the name under which a language is stored, for it or for an alias in any case.

    Raises:
        ValueError: the language is unknown; the message has similar names.
    """
    language = _NAMES.get(name.lower())
    if language is None:
        similar = get_close_matches(name.lower(), _NAMES, n=3)
        hint = f"similar: {', '.join(similar)}" if similar else "filter by kind or path"
        raise ValueError(f"unknown language {name[:64]!r} ({hint})")
    return language


def canonical_or_same(name: str) -> str:
    """Return the name under which a language is stored, or an unknown name in lower case."""
    return _NAMES.get(name.lower(), name.lower())


@dataclass(frozen=True, slots=True)
class Files:
    """Signs of the files in some languages, and the names that code examples in them may have.

    ``names`` and ``first_line`` are regular expressions that POSIX and Python understand: on a uri,
    in any case, and on the text of a file whose name has no suffix. They decide about files without
    one of ``other_media_types``.
    """

    names: str
    media_types: tuple[str, ...]
    other_media_types: tuple[str, ...]
    first_line: str
    spellings: tuple[str, ...]

    @classmethod
    def of(cls, languages: Iterable[str]) -> Files:
        """Signs of languages that have their canonical names; others have their spelling only."""
        wanted = frozenset(languages)
        types = {media_type for media_type, name in BY_MEDIA_TYPE.items() if name in wanted}
        return cls(
            names=_expression(wanted),
            media_types=tuple(sorted(types)),
            other_media_types=tuple(sorted(BY_MEDIA_TYPE.keys() - types)),
            first_line=_first_line(wanted),
            spellings=tuple(sorted({*wanted, *(a for a, of in _NAMES.items() if of in wanted)})),
        )


def _expression(wanted: frozenset[str]) -> str:
    """Regular expression on the uris of files in some languages."""
    files = [
        *(sign for sign, language in (BY_SUFFIX | BY_NAME).items() if language in wanted),
        *(sign for language in wanted for sign in _WITHOUT_GRAMMAR.get(language, ())),
        *(sign for language in wanted for sign in _SHARED.get(language, ())),
    ]
    suffixes = "|".join(re.escape(sign[1:]) for sign in sorted(files) if sign.startswith("."))
    names = "|".join(re.escape(sign) for sign in sorted(files) if not sign.startswith("."))
    parts = [
        *([rf"[^/]\.(?:{suffixes})"] if suffixes else []),
        *([rf"(?:^|/)(?:{names})(?:\.[^./?#]*)?"] if names else []),
    ]
    return rf"(?:{'|'.join(parts)})(?:[?#].*)?$" if parts else "^$"


def _first_line(wanted: frozenset[str]) -> str:
    """Regular expression on the texts of scripts, which name their interpreter."""
    names = "|".join(name for name, language in BY_INTERPRETER.items() if language in wanted)
    call = r"^\ufeff?#![ \t]*(?:[^ \t\n]*/)?(?:env[ \t]+(?:-[^ \t\n]+[ \t]+)*)?(?:[^ \t\n]*/)?"
    return rf"{call}(?:{names})[0-9.]*(?:[ \t\r\n]|$)" if names else "^$"

"""Texts that a sync leaves out by default because of their content, with the reason."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib import import_module
from itertools import islice

from content.detection import is_known_binary
from sources.files import to_text
from sources.types import Skip

__all__ = ["rules_digest", "to_document"]

_VERSION = 2
"""Increase this with each change of the rules, so that files are read again."""

_HEAD_BYTES = 4096
_LFS_POINTER = ("version https://git-lfs.github.com/spec/", "version https://hawser.github.com/")
_LFS_POINTER_CHARACTERS = 1024

_PROSE = (".md", ".mdx", ".markdown", ".rst", ".txt", ".adoc", ".org", ".tex", ".html", ".ipynb")
"""Suffixes of prose, which may be generated: generated reference pages are worth indexing."""
_HEAD_CHARACTERS = 4096
_GENERATED = re.compile(
    r"^[ \t]*(?://|\#|/?\*|--|;|<!--|%|\(\*|\"\"\"|\{-)[^\n]*?"
    r"(?:Code\ generated\b[^\n]*\bDO\ NOT\ EDIT|@generated\b|<auto-?generated"
    r"|Generated\ by\ the\ (?:\w+\ )?protocol\ buffer\ compiler)",
    re.MULTILINE,
)

_MINIFIED_KINDS = (".js", ".mjs", ".cjs", ".css", ".svg")
_MINIFIED_CHARACTERS = 2_000
_MINIFIED_LINE_CHARACTERS = 250
"""Average length of a line; linguist uses 110, which short files of a few long lines exceed."""

_FINE_GRAINED_TOKEN = re.compile(r"github_pat_[A-Za-z0-9_]{82}")
"""Token of GitHub; detect-secrets does not detect it yet, so it has no module below."""
_DETECTORS = tuple(
    (re.compile(literal), module, detector)
    for literal, module, detector in (
        ("A[KS]IA", "aws", "AWSKeyDetector"),
        ("AccountKey=", "azure_storage_key", "AzureStorageKeyDetector"),
        ("gh[opsru]_", "github_token", "GitHubTokenDetector"),
        ("github_pat_", "", ""),
        ("gl(?:pat|dt|rt|ptt)-", "gitlab_token", "GitLabTokenDetector"),
        (":_authToken", "npm", "NpmDetector"),
        ("T3BlbkFJ", "openai", "OpenAIDetector"),
        ("pypi-AgE", "pypi_token", "PypiTokenDetector"),
        ("SG\\.", "sendgrid", "SendGridDetector"),
        ("xox[abopsr]-", "slack", "SlackDetector"),
        ("hooks\\.slack\\.com/services/T", "slack", "SlackDetector"),
        ("sq0csp-", "square_oauth", "SquareOAuthDetector"),
        ("k_live_", "stripe", "StripeDetector"),
    )
)
"""Detectors of detect-secrets whose tokens are unmistakable, each with a literal that its tokens
contain: searching for a literal takes a few microseconds, the patterns of a detector far more.

Detectors that use only entropy, the name of a variable or a length are left out: they mistake
hashes, examples and base64 for secrets.
"""
_ESCAPES = (r"\n", r"\r", r"\t")
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(
    r"(?:[\s\"'+,]|\\[rn])*"
    r"(?:[A-Za-z-]+: [^\n\\]*(?:\n|\\n)(?:[\s\"'+,]|\\[rn])*)*"
    r"(?P<body>[A-Za-z0-9+/=]{40,})"
)
"""Text after the first line of a private key, if there is a key and not only its name."""
_WINDOW_CHARACTERS = 600
_MOST_WINDOWS = 1_000
"""Most signs around which a text is searched, to limit the time per text."""
_PLACEHOLDER = re.compile(
    r"example|placeholder|dummy|sample|xxxx|0{8}|1234567|abcdef", re.IGNORECASE
)
_FEWEST_CHARACTERS = 9
"""Fewest different characters in a token; one with fewer, such as ghp_aaaa…, is a placeholder."""
_NPM_PASSWORD = re.compile(
    r"^[^\#;\n]*(?:_(?:authToken|auth|password)\s*=|npmAuth(?:Token|Ident)\s*:)\s*[\"']?(?!\$\{)\S",
    re.MULTILINE,
)
_NPM_FILES = (".npmrc", ".yarnrc", ".yarnrc.yml")


def to_document(uri: str, raw: bytes, *, included: bool = False) -> str | bytes | Skip:
    """Text of a file, its bytes if they are of another known format, or the reason to skip it.

    With ``included``, its content is not checked.
    """
    if is_known_binary(uri, raw[:_HEAD_BYTES]):
        return raw
    text = to_text(raw)
    if isinstance(text, Skip) or included:
        return text
    return _reason(uri, text) or text


def rules_digest(included: Collection[str]) -> str:
    """Digest of the rules of ``to_document``, saved with its results."""
    return hashlib.sha256(json.dumps([_VERSION, *sorted(included)]).encode()).hexdigest()


def _reason(uri: str, text: str) -> Skip | None:
    if len(text) < _LFS_POINTER_CHARACTERS and text.startswith(_LFS_POINTER):
        return Skip.LFS_POINTER
    if _contains_secret(uri, text):
        return Skip.SECRET
    name = uri.rpartition("/")[2].lower()
    is_address = "://" in uri
    is_prose = name.endswith(_PROSE) or is_address
    if not is_prose and _is_generated(text[:_HEAD_CHARACTERS]):
        return Skip.GENERATED
    # a page may have the name of a script: https://docs.example.org/guide/chart.js
    is_page = is_address and text.lstrip().startswith("<")
    is_code = name.endswith(_MINIFIED_KINDS) and not is_page
    return Skip.MINIFIED if is_code and _is_minified(text) else None


def _is_generated(head: str) -> bool:
    return "enerated" in head and _GENERATED.search(head) is not None


def _is_minified(text: str) -> bool:
    lines = text.count("\n") + 1
    return len(text) >= max(_MINIFIED_CHARACTERS, lines * _MINIFIED_LINE_CHARACTERS)


def _contains_secret(uri: str, text: str) -> bool:
    if "PRIVATE KEY" in text and any(_private_keys(text)):
        return True
    if uri.endswith(_NPM_FILES) and _NPM_PASSWORD.search(text):
        return True
    return any(not _is_placeholder(token) for token in _tokens(text))


def _private_keys(text: str) -> Iterator[str]:
    for begin in islice(_KEY_BEGIN.finditer(text), _MOST_WINDOWS):
        body = _KEY_BODY.match(text, begin.end(), begin.end() + _WINDOW_CHARACTERS)
        if body and not _is_placeholder(body["body"]):
            yield body["body"]


def _tokens(text: str) -> Iterator[str]:
    for literal, module, detector in _DETECTORS:
        for match in islice(literal.finditer(text), _MOST_WINDOWS):
            start = max(match.start() - _WINDOW_CHARACTERS // 2, 0)
            for pattern in _patterns(module, detector):
                tokens = pattern.finditer(text, start, start + _WINDOW_CHARACTERS)
                yield from (token[0] for token in tokens if _stands_alone(token))


def _stands_alone(token: re.Match[str]) -> bool:
    """True if the token is not a part of a longer word or of base64.

    Tokens of AWS (capitals) have a fixed length; others may continue after the pattern.
    """
    before = token.string[max(token.start() - 2, 0) : token.start()]
    after = token.string[token.end() : token.end() + 1]
    if before[-1:].isalnum() and before not in _ESCAPES:
        return False
    return not (after.isalnum() and token[0].isupper())


def _is_placeholder(token: str) -> bool:
    return len(set(token)) < _FEWEST_CHARACTERS or _PLACEHOLDER.search(token) is not None


@cache
def _patterns(module: str, detector: str) -> tuple[re.Pattern[str], ...]:
    if not module:
        return (_FINE_GRAINED_TOKEN,)
    # imported lazily: it imports an HTTP client, and few texts need it
    plugin = import_module(f"detect_secrets.plugins.{module}")
    return tuple(getattr(plugin, detector).denylist)

"""Token counters of the askers' own models, from files that come with installed packages."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from processors.chunking.types import CountTokens
from runtime.errors import UsageError

__all__ = ["TOKENIZERS", "counter_of"]

_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
_FILES = {
    "cl100k_base": "cl100k_base",
    "o200k_base": "o200k_base",
    "o200k_harmony": "o200k_base",
    "p50k_base": "p50k_base",
    "p50k_edit": "p50k_base",
}
"""File of each encoding of OpenAI's models that LiteLLM brings along, without its ending."""

_CLAUDE = "claude-2"
_CACHE_VARIABLE = "TIKTOKEN_CACHE_DIR"

TOKENIZERS = (*_FILES, _CLAUDE)
"""Names of the tokenizers; each name of an OpenAI model that uses one of them is known too."""


def counter_of(name: str) -> CountTokens:
    """Return the counter of a tokenizer, or of the model that has this name.

    The first call for a tokenizer reads its file, which takes up to 2 s: use a thread. Nothing is
    downloaded.

    Raises:
        UsageError: there is no such tokenizer.
    """
    if name == _CLAUDE:
        return _claude_counter()
    from tiktoken.model import encoding_name_for_model  # noqa: PLC0415  # few questions need it

    try:
        encoding = name if name in _FILES else encoding_name_for_model(name)
    except KeyError:
        encoding = ""
    if encoding not in _FILES:
        raise UsageError(
            f"there is no tokenizer {name[:100]!r}",
            f"name {', '.join(TOKENIZERS)}, or an OpenAI model such as gpt-4o",
        )
    return _openai_counter(encoding)


@cache
def _openai_counter(encoding_name: str) -> CountTokens:
    import tiktoken  # noqa: PLC0415  # see above

    # tiktoken names its cached files by their address, and LiteLLM sets the same variable
    file = hashlib.sha1(_ADDRESS.format(_FILES[encoding_name]).encode()).hexdigest()  # noqa: S324
    if not (Path(os.environ.get(_CACHE_VARIABLE, "")) / file).is_file():
        os.environ[_CACHE_VARIABLE] = str(_directory())
    encoding = tiktoken.get_encoding(encoding_name)

    def count(texts: Sequence[str]) -> list[int]:
        return [len(row) for row in encoding.encode_ordinary_batch(list(texts), num_threads=1)]

    return count


@cache
def _claude_counter() -> CountTokens:
    from tokenizers import Tokenizer  # noqa: PLC0415  # see above

    tokenizer = Tokenizer.from_file(str(_directory() / "anthropic_tokenizer.json"))

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in tokenizer.encode_batch_fast(list(texts))]

    return count


def _directory() -> Path:
    """Folder of LiteLLM's tokenizers, found without importing LiteLLM, which takes seconds."""
    specification = find_spec("litellm")
    places = specification.submodule_search_locations if specification else None
    return Path(next(iter(places or [""]))) / "litellm_core_utils" / "tokenizers"

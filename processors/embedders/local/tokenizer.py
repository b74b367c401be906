"""The local model's tokenizer, as an encoder and as a counter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from processors.embedders.local.weights import TOKENIZER_FILE, locate
from runtime.errors import ConfigurationError

__all__ = ["SPECIAL_TOKENS", "TokenCounter", "load_tokenizer", "tokenizer_path"]

SPECIAL_TOKENS = 2
"""One before and one after a text: [CLS] and [SEP], or <s> and </s>."""


def tokenizer_path(model_directory: Path | None) -> Path:
    """Path of the local model's tokenizer; the packaged one is verified.

    Raises:
        ConfigurationError: the file is missing, or not the official one.
    """
    return locate(model_directory) / TOKENIZER_FILE


def load_tokenizer(path: Path, limit_tokens: int | None = None) -> Tokenizer:
    """Load a tokenizer without padding; it truncates at ``limit_tokens``, special tokens included.

    If ``limit_tokens`` is None, it does not truncate.

    Raises:
        ConfigurationError: the file is not a tokenizer.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise ConfigurationError(f"{path} is not a tokenizer: {error}") from error
    tokenizer.no_padding()
    if limit_tokens is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(limit_tokens)
    return tokenizer


class TokenCounter:
    """Counts tokens of many texts at once, without special tokens or a limit. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._tokenizer = load_tokenizer(path)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text, in order."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Count the tokens of each word of ASCII, or character of its punctuation, in order.

        It takes a fifth of the time of a call. The tokenizer must split at blanks and punctuation
        first.
        """
        tokenizer = self._tokenizer
        normalized = tokenizer.normalizer.normalize_str(" ".join(words)).split()
        return [len(tokenizer.model.tokenize(word)) for word in normalized]

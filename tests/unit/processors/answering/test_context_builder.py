"""Contexts of answers, and the tokenizers that count them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from processors.answering.context_builder import Block, ContextBuilder
from processors.answering.token_counters import TOKENIZERS, counter_of
from runtime.errors import UsageError


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def _block(number: int, document_id: int, ordinal: int, **fields: object) -> Block:
    start = 10 * ordinal + 1
    uri = f"d{document_id}"
    block = Block(
        str(number),
        document_id,
        uri,
        range(ordinal, ordinal + 1),
        start,
        start + 8,
        f"{uri}:{start}-{start + 8}",
        f"text{ordinal}",
    )
    return replace(block, **fields)  # type: ignore[arg-type]


async def test_a_context_is_in_the_order_of_documents_and_lines() -> None:
    """Documents by rank, their passages by line; neighbours share a citation."""
    blocks = [
        _block(1, 1, 7, within="def f():\n…"),
        _block(2, 2, 1),
        _block(1, 1, 2, within="class A:\n…"),
        _block(1, 1, 3, within="class A:\n…"),
    ]
    context = await ContextBuilder(_words).build(blocks, 1_000)
    assert context == (
        "[1] d1:21-39\nclass A:\n…\ntext2\n\ntext3\n\n"
        "[1] d1:71-79\ndef f():\n…\ntext7\n\n"
        "[2] d2:11-19\ntext1"
    )


async def test_passages_with_other_places_than_lines_are_not_joined() -> None:
    """Pages and cells have a citation each."""
    blocks = [_block(1, 1, at, place=f"d1 page {at}", has_lines=False) for at in (1, 2)]
    context = await ContextBuilder(_words).build(blocks, 1_000)
    assert context == "[1] d1 page 1\ntext1\n\n[1] d1 page 2\ntext2"


@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_tokenizer_counts_without_a_download(name: str) -> None:
    """Counts lie between one token per four words and one per character."""
    text = "def flow(level):\n    return level * 2  # the sluice is open"
    [count, empty] = counter_of(name)([text, ""])
    assert len(text.split()) / 4 < count < len(text)
    assert empty == 0


def test_a_model_has_the_tokenizer_of_its_family() -> None:
    """Names of OpenAI's models are known; any other name is an error with the list."""
    assert counter_of("gpt-4o") is counter_of("o200k_base")
    with pytest.raises(UsageError, match="no tokenizer 'llama-9'") as refusal:
        counter_of("llama-9")
    assert all(re.search(name, refusal.value.remedy) for name in TOKENIZERS)
    with pytest.raises(UsageError):
        counter_of("davinci")  # its file does not come with a package


async def test_a_context_fits_by_the_tokenizer_of_the_asker() -> None:
    """The tokens of the whole context, separators included, are within the budget."""
    blocks = [_block(1, 1, 2 * at, text="sluice()\n" * 9) for at in range(9)]
    context = await ContextBuilder(_words).build(blocks, 200, "cl100k_base")
    [tokens] = counter_of("cl100k_base")([context])
    assert 100 < tokens <= 200

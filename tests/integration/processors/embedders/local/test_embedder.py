from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bench.corpus import python_files, questions
from processors.chunking import cut
from processors.chunking.types import Source
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.encoder import Precision, supported_precisions
from processors.embedders.local.products import load_ranges
from processors.embedders.local.tokenizer import TokenCounter, load_tokenizer, tokenizer_path
from processors.embedders.local.weights import (
    load_tensors,
    locate,
    read_shape,
    weights_digest,
)
from tests.support.bert import reference
from tests.support.waiting import within

Array = npt.NDArray[np.float32]
TEXTS = [
    "How do I open a file in Python?",
    "def read(path):\n    with open(path) as file:\n        return file.read()",
    "The cat sleeps on the warm windowsill.",
    "x",
    " ".join(["a longer paragraph about streams, ledgers and leases."] * 20),
]


_SAMPLED = 18


@pytest.fixture(scope="module")
async def embedder() -> AsyncIterator[LocalEmbedder]:
    """Embedder shared by the tests of this module, because loading takes long."""
    embedder = LocalEmbedder()
    await embedder.start()
    yield embedder
    await embedder.close()


async def _vectors(embedder: LocalEmbedder, texts: list[str]) -> Array:
    """Embed the texts, then close the embedder."""
    try:
        return (await embedder.embed(texts, Urgency.BULK)).vectors
    finally:
        await embedder.close()


def _require(precision: Precision) -> None:
    if precision not in supported_precisions():
        pytest.skip(f"this processor does not compute in {precision}")


def _sample() -> list[str]:
    """Chunks of 6 files of the standard library, and questions from its comments."""
    count = TokenCounter(tokenizer_path(None))
    chunks = [
        f"{part.header}\n{part.content}"
        for uri, content in python_files(20_000)[:6]
        for part in cut(Source(uri, content, "code", "python"), 254, count).chunks[:2]
    ]
    return [*chunks, *questions(_SAMPLED - len(chunks))]


async def test_vectors_equal_a_plain_float32_forward_pass() -> None:
    """Vectors equal those of a plain BERT forward pass with mean pooling."""
    directory = locate(None)
    shape, weights = read_shape(directory), load_tensors(directory)
    tokenizer = load_tokenizer(tokenizer_path(None), shape.limit_tokens)
    expected = [reference(tokenizer.encode(text).ids, weights, shape) for text in TEXTS]
    for precision in {Precision.F32, Precision.BF16}.intersection(supported_precisions()):
        vectors = await _vectors(LocalEmbedder(precision=precision), TEXTS)
        for text, vector, exact in zip(TEXTS, vectors, expected, strict=True):
            assert float(exact @ vector) >= 0.9995, (precision, text)


async def test_int8_vectors_are_close_to_those_in_f32() -> None:
    """Vectors in int8 are close to those in f32, each and on average."""
    _require(Precision.INT8)
    texts = _sample()
    exact = await _vectors(LocalEmbedder(precision=Precision.F32), texts)
    for precision in (Precision.INT8, Precision.INT8_STATIC):
        rounded = await _vectors(LocalEmbedder(precision=precision), texts)
        cosines = (exact * rounded).sum(axis=1)
        assert len(cosines) == _SAMPLED
        assert cosines.min() >= 0.99, (precision, texts[int(cosines.argmin())])
        assert cosines.mean() >= 0.997, precision


async def test_other_weights_run_in_int8_without_ranges(tmp_path: Path) -> None:
    """Weights without measured ranges work in int8."""
    _require(Precision.INT8)
    directory = Path(shutil.copytree(locate(None), tmp_path / "model"))
    with (directory / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    assert load_ranges(weights_digest(directory)) is None
    exact = await _vectors(LocalEmbedder(precision=Precision.F32), TEXTS)
    rounded = await _vectors(LocalEmbedder(directory, precision=Precision.INT8), TEXTS)
    assert (exact * rounded).sum(axis=1).min() >= 0.985


async def test_several_threads_give_the_vectors_of_one() -> None:
    """Several threads give the same vectors as one, in the order of the texts."""
    texts = [f"{'word ' * (index % 60)}number {index}" for index in range(70)]
    one = LocalEmbedder(precision=Precision.F32)
    several = LocalEmbedder(threads=3, precision=Precision.F32)
    expected = await _vectors(one, texts)
    halves = await asyncio.gather(
        several.embed(texts[:30], Urgency.BULK), several.embed(texts[30:], Urgency.LIVE)
    )
    await several.close()
    together = np.concatenate([half.vectors for half in halves])
    np.testing.assert_allclose((expected * together).sum(axis=1), 1, atol=1e-4)


async def test_related_sentences_are_nearer_than_unrelated_ones(embedder: LocalEmbedder) -> None:
    """A paraphrase has a clearly higher similarity than another subject."""
    texts = ["A man is eating food.", "Somebody has a meal.", "The stock market fell sharply."]
    asked, paraphrase, other = (await embedder.embed(texts, Urgency.QUERY)).vectors
    assert float(asked @ paraphrase) > float(asked @ other) + 0.3


async def test_a_text_has_one_vector_in_any_company(embedder: LocalEmbedder) -> None:
    """A vector does not depend on order, padding or batching, and has unit length."""
    texts = [f"{'word ' * (index % 90)}number {index}" for index in range(150)]
    together = await embedder.embed(texts, Urgency.BULK)
    assert together.vectors.shape == (150, embedder.dimensions)
    assert together.tokens == sum(embedder.count_tokens(texts))
    np.testing.assert_allclose(np.linalg.norm(together.vectors, axis=1), 1, atol=1e-5)
    for index in (0, 77, 149):
        alone = (await embedder.embed([texts[index]], Urgency.BULK)).vectors[0]
        assert float(alone @ together.vectors[index]) > 0.9995


async def test_nothing_to_embed_is_no_vectors(embedder: LocalEmbedder) -> None:
    """An empty list gives an empty array of the right width."""
    embeddings = await embedder.embed([], Urgency.BULK)
    assert embeddings.vectors.shape == (0, embedder.dimensions)
    assert embeddings.tokens == 0


async def test_a_query_overtakes_a_long_bulk_batch(embedder: LocalEmbedder) -> None:
    """A query is embedded before a bulk batch that was started earlier has finished."""
    texts = ["some words to embed, again and again " * 10] * 60
    bulk = asyncio.create_task(embedder.embed(texts, Urgency.BULK))
    await asyncio.sleep(0)
    await embedder.embed(["a question"], Urgency.QUERY)
    assert not bulk.done()
    assert len((await bulk).vectors) == 60


async def test_a_cancelled_batch_frees_the_thread(embedder: LocalEmbedder) -> None:
    """A cancelled batch stops computing, and the model still answers."""
    bulk = asyncio.create_task(embedder.embed(["words " * 250] * 3000, Urgency.BULK))
    await asyncio.sleep(0)
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk
    async with within(5):
        await embedder.embed(["still there?"], Urgency.BULK)


def test_the_counter_leaves_special_tokens_out() -> None:
    """Counts exclude special tokens and have no limit."""
    count = TokenCounter(tokenizer_path(None))
    assert count(["", "hello world", "hello " * 1000]) == [0, 2, 1000]


def test_importing_openvino_here_never_loads_its_telemetry(tmp_path: Path) -> None:
    """A process that embeds loads no telemetry code and writes no files to the home."""
    script = """
import asyncio, sys
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.embedder import Urgency
embedder = LocalEmbedder()
asyncio.run(embedder.embed(["text"], Urgency.QUERY))
print([name for name in sys.modules if name.startswith("openvino_telemetry") and sys.modules[name]])
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[5],
        env={"HOME": str(tmp_path), "PYTHONPATH": "."},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"
    assert not list(tmp_path.iterdir())

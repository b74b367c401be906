"""A user's own cross-encoder, against plain NumPy."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from processors.embedders.local.cross_encoder import CrossEncoder
from processors.embedders.local.encoder import Precision
from processors.embedders.local.tokenizer import load_tokenizer, tokenizer_path
from processors.embedders.local.weights import load_tensors, read_shape
from processors.recipes import reranker_of
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from tests.support.bert import relevance, write_model

QUESTION = "How do I open a file in Python?"
TEXTS = [
    "def read(path):\n    with open(path) as file:\n        return file.read()",
    "The cat sleeps on the warm windowsill.",
    "x",
    " ".join(["a longer paragraph about streams, ledgers and leases."] * 80),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cross-encoder with random weights and the packaged tokenizer, saved as transformers does."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path(None)))
    path = tmp_path_factory.mktemp("models") / "cross-encoder"
    return write_model(path, tokenizer, prefix="bert.", labels=1)


async def test_relevances_equal_a_plain_float32_forward_pass(directory: Path) -> None:
    """Pairs are encoded with token types, and a pair over the limit is truncated."""
    shape, weights = read_shape(directory), load_tensors(directory)
    tokenizer = load_tokenizer(directory / "tokenizer.json", shape.limit_tokens)
    pairs = [tokenizer.encode(QUESTION, text) for text in TEXTS]
    assert len(pairs[-1].ids) == shape.limit_tokens
    expected = [relevance(pair.ids, pair.type_ids, weights, shape) for pair in pairs]
    assert len({round(value, 3) for value in expected}) == len(TEXTS), "the test shows an order"
    for threads in (1, 3):
        model = CrossEncoder(directory, threads, Precision.F32)
        try:
            relevances = await model.rerank(QUESTION, TEXTS)
        finally:
            await model.close()
        assert relevances.values == pytest.approx(expected, abs=1e-4)
        assert relevances.usage is None


async def test_the_setting_opens_a_directory(directory: Path) -> None:
    """A path is a model of this process, which gets 20 candidates and no provider."""
    settings = Settings(rerank={"model": str(directory), "timeout": timedelta(seconds=2)})
    model = reranker_of(settings)
    assert isinstance(model, CrossEncoder)
    await model.load()
    assert (model.provider, model.candidates, model.circuits) == ("", 20, [])
    assert model.model.startswith("local/cross-encoder-")
    await model.close()
    assert reranker_of(Settings()) is None
    with pytest.raises(ConfigurationError, match=r"no model\.safetensors"):
        reranker_of(Settings(rerank={"model": str(directory.parent)}))


@pytest.mark.parametrize(("labels", "told"), [(3, "not one output"), (0, "classifier")])
async def test_another_head_is_refused(tmp_path: Path, labels: int, told: str) -> None:
    """A model without a classifier of one output is refused when it is loaded."""
    tokenizer = Tokenizer.from_file(str(tokenizer_path(None)))
    model = CrossEncoder(write_model(tmp_path / "m", tokenizer, width=16, labels=labels))
    with pytest.raises(ConfigurationError, match=told):
        await model.load()
    await model.close()

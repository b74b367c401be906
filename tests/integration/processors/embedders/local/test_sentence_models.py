"""A user's own sentence encoder: pooling, prompts and tokenizers, against plain NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from bench.corpus import questions
from processors.embedders.embedder import Urgency
from processors.embedders.local.embedder import LocalEmbedder
from processors.embedders.local.encoder import Precision
from processors.embedders.local.sentence_config import (
    Pooling,
    SentenceConfig,
    read_sentence_config,
)
from processors.embedders.local.tokenizer import load_tokenizer, tokenizer_path
from processors.embedders.local.weights import load_tensors, model_name, read_shape
from runtime.errors import ConfigurationError
from tests.support.bert import reference, write_model

TEXTS = ["How do I open a file?", "x", "Grüße aus Köln: 你好", " ".join(["a long text"] * 300)]
CLS = {"word_embedding_dimension": 64, "pooling_mode_cls_token": True}
E5 = {"prompts": {"query": "query: ", "passage": "passage: "}}
BGE = {"prompts": {"query": "Represent this sentence: "}}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {
        "idx": 2,
        "name": "2",
        "path": "2_Normalize",
        "type": "sentence_transformers.models.Normalize",
    },
]


def wordpiece() -> Tokenizer:
    """Tokenizer of BERT, bge and arctic-embed."""
    return Tokenizer.from_file(str(tokenizer_path(None)))


def unigram() -> Tokenizer:
    """Tokenizer with the form of that of multilingual e5, trained on a few questions."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=special, unk_token=special[3], show_progress=False
    )
    tokenizer.train_from_iterator(questions(60), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "files", "expected"),
    [
        (
            wordpiece,
            {"1_Pooling/config.json": CLS, "config_sentence_transformers.json": BGE},
            SentenceConfig(Pooling.CLS, "Represent this sentence: ", ""),
        ),
        (
            unigram,
            {
                "1_Pooling/config.json": {"pooling_mode": "mean"},
                "config_sentence_transformers.json": E5,
                "modules.json": MODULES,
            },
            SentenceConfig(Pooling.MEAN, "query: ", "passage: "),
        ),
        (
            unigram,
            {
                "config.json": {
                    "model_type": "xlm-roberta",
                    "hidden_act": "gelu",
                    "hidden_size": 64,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "max_position_embeddings": 512,
                    "pad_token_id": 1,
                    "layer_norm_eps": 1e-5,
                },
                "1_Pooling/config.json": CLS,
            },
            SentenceConfig(Pooling.CLS),
        ),
    ],
    ids=["bge", "e5", "bge-m3"],
)
async def test_vectors_equal_those_of_a_plain_forward_pass(
    tmp_path: Path, tokenizer: Any, files: dict[str, Any], expected: SentenceConfig
) -> None:
    """Pooling, prompts, positions and tokenizer are those of the directory."""
    prefix = "roberta." if "config.json" in files else ""
    directory = write_model(tmp_path / "model", tokenizer(), prefix=prefix, files=files)
    assert read_sentence_config(directory) == expected
    shape, weights = read_shape(directory), load_tensors(directory)
    assert shape.limit_tokens == (510 if prefix else 512)
    tokens = load_tokenizer(directory / "tokenizer.json", shape.limit_tokens)
    embedder = LocalEmbedder(directory, precision=Precision.F32)
    prompts = {Urgency.QUERY: expected.question_prompt, Urgency.BULK: expected.document_prompt}
    longest = max(len(tokens.encode(prompt).ids) for prompt in prompts.values())
    assert embedder.limit_tokens == shape.limit_tokens - longest
    try:
        for urgency, prompt in prompts.items():
            vectors = (await embedder.embed(TEXTS, urgency)).vectors
            for text, vector in zip(TEXTS, vectors, strict=True):
                wanted = reference(tokens.encode(prompt + text).ids, weights, shape)
                assert float(wanted @ vector) >= 0.9999, (prompt, text)
    finally:
        await embedder.close()


def test_pooling_and_prompts_are_part_of_the_name(tmp_path: Path) -> None:
    """Vectors of the same weights with another pooling or prompt have another name."""
    tokenizer = wordpiece()
    variants: list[dict[str, Any]] = [
        {},
        {"1_Pooling/config.json": {"pooling_mode_mean_tokens": True}},
        {"1_Pooling/config.json": CLS},
        {"config_sentence_transformers.json": E5},
        {"config_sentence_transformers.json": BGE},
    ]
    names = [
        model_name(write_model(tmp_path / str(number) / "m", tokenizer, width=16, files=files))
        for number, files in enumerate(variants)
    ]
    assert names[0] == names[1]
    assert len(set(names)) == len(variants) - 1


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "mean or CLS pooling"),
        ({"1_Pooling/config.json": {"pooling_mode": "lasttoken"}}, "mean or CLS pooling"),
        ({"1_Pooling/config.json": {**CLS, "pooling_mode_mean_tokens": True}}, "mean or CLS"),
        (
            {"modules.json": [*MODULES, {"path": "3_Dense", "type": "models.Dense"}]},
            "Transformer, Pooling, Normalize alone",
        ),
        ({"modules.json": {"path": ""}}, "not a list of modules"),
        (
            {
                "config_sentence_transformers.json": {"similarity_fn_name": "dot"},
                "modules.json": MODULES[:2],
            },
            "unit length",
        ),
        (
            {
                "1_Pooling/config.json": {**CLS, "include_prompt": False},
                "config_sentence_transformers.json": E5,
            },
            "part of the mean",
        ),
        (
            {"config_sentence_transformers.json": {"prompts": {"query": 1}}},
            "prompts that are texts",
        ),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, files: dict[str, Any], told: str) -> None:
    """What the engine does not compute is refused with its reason."""
    directory = write_model(tmp_path / "m", wordpiece(), width=16, layers=1, files=files)
    with pytest.raises(ConfigurationError, match=told):
        LocalEmbedder(directory)


def test_a_default_prompt_is_that_of_every_text(tmp_path: Path) -> None:
    """Without a prompt of its own, a text has the default prompt, as in sentence-transformers."""
    config = {"prompts": {"query": "q: ", "usual": "u: "}, "default_prompt_name": "usual"}
    files = {"config_sentence_transformers.json": config}
    directory = write_model(tmp_path / "m", wordpiece(), width=16, layers=1, files=files)
    assert read_sentence_config(directory) == SentenceConfig(Pooling.MEAN, "q: ", "u: ")
    assert np.isfinite(load_tensors(directory)["pooler.dense.bias"]).all()

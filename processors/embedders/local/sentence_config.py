"""Configuration of a sentence-transformers model: pooling, prompts and normalisation.

Reads ``modules.json``, the pooling's ``config.json`` and ``config_sentence_transformers.json``, in
the forms that versions 2 to 5 of sentence-transformers write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from runtime.errors import ConfigurationError

__all__ = ["Pooling", "SentenceConfig", "read_json", "read_sentence_config"]

_MODULES = ("Transformer", "Pooling", "Normalize")
_PREFIX = "pooling_mode_"
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
"""Names of the prompt of documents, as sentence-transformers looks them up."""


class Pooling(StrEnum):
    """One value per text: mean of its tokens, its first token, or a classifier of that token."""

    MEAN = "mean"
    CLS = "cls"
    CLASSIFIER = "classifier"


_POOLING_MODES = {"mean_tokens": Pooling.MEAN, "cls_token": Pooling.CLS} | {
    pooling.value: pooling for pooling in (Pooling.MEAN, Pooling.CLS)
}


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """Way from texts to vectors of unit length; the prompts are put before each text."""

    pooling: Pooling = Pooling.MEAN
    question_prompt: str = ""
    document_prompt: str = ""


def read_sentence_config(directory: Path) -> SentenceConfig:
    """Read the configuration. A model without these files has mean pooling and no prompts.

    Raises:
        ConfigurationError: the model has another pooling or other layers, leaves the prompts out of
            the mean, or compares vectors by a dot product without unit length.
    """
    modules = _modules(directory)
    pooling = read_json(directory / modules["Pooling"] / "config.json", default={})
    config = read_json(directory / "config_sentence_transformers.json", default={})
    prompts = _prompts(directory, config)
    if pooling.get("include_prompt", True) is not True and any(prompts):
        raise _unsupported(directory, "prompts that are part of the mean")
    if config.get("similarity_fn_name") == "dot" and "Normalize" not in modules:
        raise _unsupported(directory, "vectors of unit length, or cosine similarity")
    return SentenceConfig(_pooling(directory, pooling), *prompts)


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read a JSON object. ``default`` is the value of a missing file.

    Raises:
        ConfigurationError: the file is missing, or not a JSON object.
    """
    if default is not None and not path.is_file():
        return default
    parsed = _parsed(path)
    if not isinstance(parsed, dict):
        raise ConfigurationError(f"{path} cannot be read: it is not a JSON object")
    return parsed


def _parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read as JSON: {error}") from error


def _modules(directory: Path) -> Mapping[str, str]:
    """Folder of each module by the name of its class."""
    path = directory / "modules.json"
    if not path.is_file():
        return {"Transformer": "", "Pooling": "1_Pooling", "Normalize": ""}
    parsed = _parsed(path)
    try:
        modules = {str(row["type"]).rpartition(".")[2]: str(row["path"]) for row in parsed}
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} cannot be read: it is not a list of modules") from error
    if not {"Transformer", "Pooling"} <= modules.keys() <= set(_MODULES):
        raise _unsupported(directory, f"the modules {', '.join(_MODULES)} alone")
    return modules


def _pooling(directory: Path, config: Mapping[str, Any]) -> Pooling:
    """Read the one pooling mode, which is a name or a flag of its own; without any, it is mean."""
    flags = {
        name.removeprefix(_PREFIX): value
        for name, value in config.items()
        if name.startswith(_PREFIX)
    }
    chosen = [name for name, value in flags.items() if value is True]
    if not flags:
        chosen = [config.get("pooling_mode", "mean")]
    if len(chosen) != 1 or chosen[0] not in _POOLING_MODES:
        raise _unsupported(directory, "mean or CLS pooling")
    return _POOLING_MODES[chosen[0]]


def _prompts(directory: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """Prompts of questions and of documents; without its own, a text has the default prompt."""
    prompts: dict[str, str] = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(prompt, str) for prompt in prompts.values()
    ):
        raise _unsupported(directory, "prompts that are texts")
    usual = prompts.get(str(config.get("default_prompt_name")), "")
    document = next((prompts[name] for name in _DOCUMENT_PROMPTS if name in prompts), usual)
    return prompts.get("query", usual), document


def _unsupported(directory: Path, demand: str) -> ConfigurationError:
    return ConfigurationError(
        f"the model in {directory} does not have {demand}",
        "use a sentence-transformers BERT model",
    )

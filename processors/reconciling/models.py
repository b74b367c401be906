"""Checks of the models: verified weights of local models, keys of remote ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from processors.inference import ModelOptions
from processors.inference.provider import Endpoint, Provider
from processors.inference.registry import create_embedder
from processors.reconciling.findings import Condition
from runtime.errors import ConfigurationError

__all__ = ["judge_models"]

_LOCAL = "local/"
_DIMENSIONS = re.compile(r"@[1-9]\d*$")


async def judge_models(models: Iterable[str], options: ModelOptions) -> list[Condition]:
    """Judge each model, given by full name; nothing is sent to remote models."""
    return [await asyncio.to_thread(_judge, model, options) for model in models]


def _judge(model: str, options: ModelOptions) -> Condition:
    name = f"model.{model}"
    try:
        if model.startswith(_LOCAL):
            create_embedder(model, options)
            return Condition.ok(name, "its weights are present and verified")
        plain = _DIMENSIONS.sub("", model)
        Provider(Endpoint(plain, options.api_key, options.base_url))
    except ConfigurationError as error:
        detail, _, cure = str(error).rpartition(": ")
        return Condition.problem(name, detail or str(error), cure)
    return Condition.ok(name, "its provider is known, and a key is set")

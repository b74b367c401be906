"""Recipe from the settings, by which a new project's first generation is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import structlog

from events.models import DOCUMENT_KINDS
from events.rate_limits import RateLimits
from processors.chunking.registry import Chunking
from processors.contexts.models import ContextOptions
from processors.embedders.local.cross_encoder import CrossEncoder
from processors.embedders.local.encoder import Precision
from processors.embedders.registry import ModelOptions, full_name
from processors.embedders.remote.circuit_breaker import CircuitOptions
from processors.embedders.remote.rate_limiter import RateLimiter
from processors.embedders.remote.reranker import LiteLLMReranker
from processors.embedders.reranker import Reranker
from runtime.cores import model_threads
from runtime.errors import ConfigurationError
from runtime.settings import MODEL_SETTINGS, Settings
from store.generations.catalog import Generation, Recipe
from store.search.keyword.tokenizer import TOKENS_VERSION

__all__ = [
    "RecipeNotices",
    "chooses_models",
    "context_options",
    "differing",
    "model_options",
    "rate_limits",
    "recipe_of",
    "replay_command",
    "reranker_of",
]

log = structlog.get_logger(__name__)

_FAILURES_WITHIN = timedelta(minutes=1)
_NEARLY = 0.8


def model_options(settings: Settings) -> ModelOptions:
    """Read from the settings how models are loaded and called.

    A model that stalls fails once per timeout. The circuit's time window is extended by that, so
    that all failures in a row count.
    """
    requests = settings.model_requests
    within = _FAILURES_WITHIN + requests.failures * requests.timeout
    wanted = settings.model_precision
    return ModelOptions(
        directory=settings.model_directory,
        threads=model_threads(settings),
        precision=None if wanted == "auto" else Precision(wanted),
        api_key=settings.model_api_key.get_secret_value(),
        base_url=settings.model_base_url,
        dimensions=settings.model_dimensions,
        timeout=requests.timeout,
        retries=requests.retries,
        circuit=CircuitOptions(requests.failures, within),
    )


def context_options(settings: Settings) -> ContextOptions:
    """Read from the settings how language models are called; as embedding models, mostly."""
    options = model_options(settings)
    return ContextOptions(
        settings.context.base_url, options.timeout, options.retries, options.circuit
    )


def reranker_of(settings: Settings, rate_limiter: RateLimiter | None = None) -> Reranker | None:
    """Build the reranker of the settings. Returns None if they choose none.

    A request that is cancelled near its time limit counts as failed: a question does not wait for
    the limit of the request.

    Raises:
        ConfigurationError: the directory does not contain a BERT model.
    """
    model, options = settings.rerank.model, model_options(settings)
    if not model:
        return None
    directory = Path(model).expanduser()
    if directory.is_absolute() or directory.is_dir():
        return CrossEncoder(directory, options.threads, options.precision)
    timeout = settings.rerank.timeout
    return LiteLLMReranker(
        model,
        settings.rerank.base_url,
        timeout,
        options.retries,
        replace(options.circuit, cancelled_after=timeout * _NEARLY),
        rate_limiter,
    )


def rate_limits(settings: Settings) -> RateLimits:
    """Read the providers' rate limits, which all workers share."""
    limits = settings.model_rate_limits
    return RateLimits(limits.requests_per_minute, limits.tokens_per_minute)


def recipe_of(settings: Settings) -> Recipe:
    """Build the recipe: models by their full names, and the newest chunking and tokeniser.

    Raises:
        ConfigurationError: a model is chosen for a kind that does not exist, or the model
            directory does not contain a model.
    """
    unknown = settings.models.keys() - set(DOCUMENT_KINDS)
    if unknown:
        raise ConfigurationError(
            f"HEADRACE_MODELS has the unknown kind {min(unknown)}",
            f"use one of {', '.join(DOCUMENT_KINDS)}",
        )
    options = model_options(settings)
    models = {kind: full_name(name, options) for kind, name in settings.models.items()}
    return Recipe(
        full_name(settings.model, options),
        models,
        str(Chunking()),
        TOKENS_VERSION,
        context=settings.context.model,
    )


def chooses_models(settings: Settings) -> bool:
    """Return whether any setting chooses a model; otherwise the default model is used."""
    return bool(settings.model_fields_set & MODEL_SETTINGS)


class RecipeNotices:
    """Warns, once per project, if its generation has other models than the settings choose.

    ``wanted`` is None if the settings do not choose models. ``compared`` are the ids of generations
    that need no other comparison.
    """

    def __init__(self, wanted: Recipe | None) -> None:
        self._wanted = wanted
        self.compared: set[int] = set()
        self._warned: set[str] = set()

    def compare(self, project: str, generation: Generation) -> None:
        """Log a warning if the models differ."""
        self.compared.add(generation.id)
        if self._wanted is None or project in self._warned:
            return
        other = differing(generation.recipe, self._wanted)
        if not other:
            return
        self._warned.add(project)
        log.warning(
            "models.differ",
            project=project,
            generation=generation.id,
            remedy=" && ".join(
                replay_command(project, kind, model) for kind, model in other.items()
            ),
        )


def differing(made: Recipe, wanted: Recipe) -> Mapping[str, str]:
    """Wanted models that differ, by kind of content; '' stands for all kinds without their own."""
    if made.model != wanted.model:
        return {"": wanted.model} | {
            kind: model for kind, model in wanted.models.items() if model != wanted.model
        }
    kinds = sorted(made.models.keys() | wanted.models.keys())
    return {
        kind: wanted.model_of(kind)
        for kind in kinds
        if made.model_of(kind) != wanted.model_of(kind)
    }


def replay_command(project: str, kind: str, model: str) -> str:
    """Command that embeds a kind of content, or all kinds, with another model."""
    choice = f" --kind {kind}" if kind else ""
    return f"headrace replay --project {project} --model {model}{choice}"

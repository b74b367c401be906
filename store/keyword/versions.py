"""Which versions of the keyword leg's terms this code can make."""

from __future__ import annotations

from runtime.errors import ConfigurationError
from store.generations import Generation
from store.keyword.tokens import TOKENS_VERSION

__all__ = ["require_known_terms"]


def require_known_terms(project: str, generation: Generation) -> None:
    """Make sure that texts and questions give the terms that a generation is made of.

    Raises:
        ConfigurationError: they would give others, by which nothing is found.
    """
    version = generation.recipe.tokens
    if version != TOKENS_VERSION:
        raise ConfigurationError(
            f"generation {generation.id} of {project} has keyword terms of version {version}, and "
            f"this Headrace makes those of version {TOKENS_VERSION}: run `headrace replay "
            f"--project {project}`, or the Headrace that made it"
        )

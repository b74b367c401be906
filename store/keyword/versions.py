"""Check that this code produces the version of terms that a generation was indexed with."""

from __future__ import annotations

from runtime.errors import ConfigurationError
from store.generations import Generation
from store.keyword.tokens import TOKENS_VERSION

__all__ = ["require_known_terms"]


def require_known_terms(project: str, generation: Generation) -> None:
    """Make sure that this code converts texts to the same terms as those of a generation.

    Raises:
        ConfigurationError: it produces other terms, by which nothing would be found.
    """
    version = generation.recipe.tokens
    if version != TOKENS_VERSION:
        raise ConfigurationError(
            f"generation {generation.id} of {project} has keyword terms of version {version}, but "
            f"this Headrace produces version {TOKENS_VERSION}: run `headrace replay "
            f"--project {project}`, or use the Headrace that built it"
        )

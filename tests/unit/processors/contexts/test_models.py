"""Language models: what a request that gets no answer may have cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from processors.contexts.models import ContextModel, ContextOptions
from processors.embedders.remote.provider import Completion, Provider
from runtime.errors import Unavailable
from store.documents.costs import Usage


class _Provider:
    """Provider that cannot be reached, or times out; a token costs one dollar."""

    name = "scripted"

    def __init__(self, cause: Exception) -> None:
        self._cause = cause

    def listed_cost_usd(self, tokens_in: int, tokens_out: int) -> float | None:
        return float(tokens_in + tokens_out)

    async def complete(self, messages: Sequence[Mapping[str, Any]], most_tokens: int) -> Completion:
        raise Unavailable("no answer") from self._cause


@pytest.mark.parametrize(
    ("cause", "lost"), [(TimeoutError(), [Usage(1, 10, 0, 5, 15.0)]), (OSError(), [])]
)
async def test_a_request_that_timed_out_counts_with_the_most_that_it_can_cost(
    cause: Exception, lost: list[Usage]
) -> None:
    """One that did not reach the provider costs nothing."""
    provider = cast("Provider", _Provider(cause))
    model = ContextModel("scripted/model", ContextOptions(retries=0), provider)
    counted: list[Usage] = []
    with pytest.raises(Unavailable):
        await model.ask([], 10, 5, counted)
    await model.close()
    assert counted == lost

"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

__all__ = ["eventually"]

Answer = TypeVar("Answer")


@overload
async def eventually(
    condition: Callable[[], Awaitable[Answer]],
    description: str,
    *,
    timeout: float = 10.0,
    every: float = 0.02,
) -> Answer: ...


@overload
async def eventually(
    condition: Callable[[], Answer],
    description: str,
    *,
    timeout: float = 10.0,
    every: float = 0.02,
) -> Answer: ...


async def eventually(
    condition: Callable[[], Answer | Awaitable[Answer]],
    description: str,
    *,
    timeout: float = 10.0,
    every: float = 0.02,
) -> Answer:
    """The first true answer of ``condition``, asked every ``every`` seconds.

    Raises:
        AssertionError: still not so after ``timeout`` seconds; names the condition and its answer.
    """
    answer: Answer | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                asked = condition()
                answer = await asked if inspect.isawaitable(asked) else asked
                if answer:
                    return answer
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"not within {timeout} s: {description} (last: {answer!r})") from None

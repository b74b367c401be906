"""The blocking client on a real Redis."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from events.client.blocking import BlockingClient
from events.client.outcomes import Outcome, Outcomes
from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentIndexed, DocumentIndexedData
from events.names import Names
from runtime.errors import Unavailable

NAMES = Names()
SOON = timedelta(milliseconds=50)


def indexed(receipt: Receipt) -> DocumentIndexed:
    return DocumentIndexed(
        data=DocumentIndexedData(
            event_id=receipt.event_id,
            token=receipt.token,
            project="p",
            uri="a",
            change="upsert",
            outcome="indexed",
        )
    )


async def test_an_event_id_is_published_once(redis: Redis, redis_url: str) -> None:
    """A program that died before it had the receipt repeats the call."""

    def use() -> list[Receipt]:
        with BlockingClient.connect(redis_url) as client:
            return [
                client.upsert("p", "a", "text", event_id="one"),
                client.upsert("p", "a", "text", event_id="one"),
                client.rename("p", "b", "a", "text"),
                client.delete("p", "b"),
                client.publish(DocumentChange(project="p", uri="c", content="text")),
                *client.publish_many([DocumentChange(project="p", uri="d", content="text")]),
            ]

    receipts = await asyncio.to_thread(use)
    assert [receipt.duplicate for receipt in receipts] == [False, True, *[False] * 4]
    assert len({receipt.token for receipt in receipts}) == 5


async def test_outcomes_are_yielded_one_by_one(redis: Redis, redis_url: str) -> None:
    """Outcomes are yielded until all have arrived, and a missing one raises Unavailable."""
    with BlockingClient.connect(redis_url) as client:

        def publish() -> list[Receipt]:
            return [client.upsert("p", uri, "text") for uri in ("a", "b", "c")]

        receipts = await asyncio.to_thread(publish)
        expected = [indexed(receipt) for receipt in receipts]
        await Outcomes(redis, NAMES).publish(expected[:2])
        arrived: list[Outcome] = []

        def follow(followed: list[Receipt], patience: timedelta) -> None:
            arrived.extend(client.outcomes(followed, patience))

        await asyncio.to_thread(follow, receipts[:2], timedelta(minutes=1))
        assert arrived == expected[:2]
        with pytest.raises(Unavailable, match="1 changes have no outcome"):
            await asyncio.to_thread(follow, receipts[2:], SOON)

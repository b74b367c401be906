"""``headrace publish``: events from any program that can print JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Annotated, BinaryIO

import typer

from events import Client, DocumentChanged, DocumentRejected, Lane, Receipt
from gateway.clients import open_publisher
from gateway.output import print_json
from gateway.session import JsonOption, duration, run_client
from gateway.stack import stack
from runtime import protocol
from runtime.errors import HeadraceError, UsageError
from runtime.settings import Settings

__all__ = ["command"]

_BATCH = 256


@dataclass(frozen=True)
class _Wait:
    """Longest wait, and whether it is for vectors too."""

    timeout: timedelta
    vectors: bool


def command(
    lane: Annotated[Lane, typer.Option(help="live: few and urgent; bulk: many.")] = Lane.LIVE,
    durable: Annotated[
        bool, typer.Option("--durable", help="Keep them in Postgres too until they are archived.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until they are searchable by keyword.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Wait until they are searchable by vector too.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Longest wait, in seconds.")] = 60,
    json: JsonOption = False,
) -> None:
    """Publish document.changed events, one JSON object a line, from standard input.

    Prints the token of each, in order; `ask --min-event TOKEN` then reflects it.
    """
    wanted = _Wait(duration(timeout), vectors=vectors) if wait or vectors else None
    run_client(lambda settings: _publish(settings, lane, wanted, durable=durable, json=json))


async def _publish(
    settings: Settings, lane: Lane, wait: _Wait | None, *, durable: bool, json: bool
) -> None:
    async with (
        stack(settings, with_worker=wait is not None) as running,
        open_publisher(running, durable=durable) as client,
    ):
        receipts: list[Receipt] = []
        parsed = _parsed(sys.stdin.buffer)
        while batch := list(islice(parsed, _BATCH)):
            published = await client.publish_many(batch, lane, durable=durable)
            for receipt in published:
                _print_receipt(receipt, json=json)
            receipts += published
        if wait is not None:
            await _wait(client, receipts, wait)


def _parsed(lines: BinaryIO) -> Iterator[DocumentChanged]:
    """Raises UsageError naming the line that is no event; those before it may be published.

    No more is read of a line than an event may have: somebody may pipe a disk into us.
    """
    read = partial(lines.readline, protocol.EVENT_BYTES + 1)
    for number, line in enumerate(iter(read, b""), start=1):
        if line.strip():
            try:
                yield DocumentChanged.from_bytes(line)
            except HeadraceError as error:
                raise UsageError(f"line {number}: {error}") from None


def _print_receipt(receipt: Receipt, *, json: bool) -> None:
    if json:
        print_json(
            {
                "token": receipt.token,
                "event_id": receipt.event_id,
                "duplicate": receipt.duplicate,
            }
        )
    else:
        typer.echo(receipt.token)


async def _wait(client: Client, receipts: list[Receipt], wait: _Wait) -> None:
    outcomes = await client.wait(receipts, wait.timeout, vectors=wait.vectors)
    rejected = [one for one in outcomes.values() if isinstance(one, DocumentRejected)]
    if rejected:
        raise UsageError(
            f"{len(rejected)} of {len(outcomes)} events were rejected, the first one because "
            f"{rejected[0].data.problem.detail}; `headrace dead list` shows all"
        )

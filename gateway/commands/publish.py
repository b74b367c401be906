"""``headrace publish``: publish events that any program prints as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Annotated, BinaryIO

import typer

from events.client.client import Client
from events.client.publisher import Receipt
from events.models import DocumentChanged, DocumentRejected
from events.names import Lane
from gateway.clients import open_publisher
from gateway.output import print_json
from gateway.servers import stack
from gateway.session import JsonOption, duration, run_client
from runtime import protocol_limits
from runtime.errors import HeadraceError, UsageError
from runtime.settings import Settings

__all__ = ["command"]

_BATCH = 256


@dataclass(frozen=True)
class _WaitOptions:
    """Longest wait; ``vectors`` is set to wait for vectors too."""

    timeout: timedelta
    vectors: bool


def command(
    lane: Annotated[
        Lane, typer.Option(help="live for few, urgent changes; bulk for many.")
    ] = Lane.LIVE,
    durable: Annotated[
        bool,
        typer.Option("--durable", help="Also keep events in Postgres until they are archived."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all are searchable by keyword.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Wait until all are also searchable by vector.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Longest wait, in seconds.")] = 60,
    json: JsonOption = False,
) -> None:
    """Publish document.changed events from standard input, one JSON object per line.

    Prints the token of each event, in order. `ask --min-event TOKEN` waits for that event.
    """
    wait_options = _WaitOptions(duration(timeout), vectors=vectors) if wait or vectors else None
    run_client(lambda settings: _publish(settings, lane, wait_options, durable=durable, json=json))


async def _publish(
    settings: Settings, lane: Lane, wait: _WaitOptions | None, *, durable: bool, json: bool
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
    """Parse one event per line; raise UsageError with the number of the first invalid line.

    Events before that line may already be published. No more bytes of a line are read than
    an event may have, because the input may be endless.
    """
    read = partial(lines.readline, protocol_limits.EVENT_BYTES + 1)
    for number, line in enumerate(iter(read, b""), start=1):
        if line.strip():
            try:
                yield DocumentChanged.from_bytes(line)
            except HeadraceError as error:
                raise UsageError(f"line {number}: {error.message}", error.remedy) from None


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


async def _wait(client: Client, receipts: list[Receipt], wait: _WaitOptions) -> None:
    outcomes = await client.wait(receipts, wait.timeout, vectors=wait.vectors)
    rejected = [outcome for outcome in outcomes.values() if isinstance(outcome, DocumentRejected)]
    if rejected:
        reason = rejected[0].data.problem.detail
        of_all = f"{len(rejected):,} of {len(outcomes):,} events were rejected, the first one"
        raise UsageError(
            f"{'the event was rejected' if len(outcomes) == 1 else of_all} because {reason}",
            "`headrace dead list` shows all",
        )

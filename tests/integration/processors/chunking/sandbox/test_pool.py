"""Sandbox of parsers: a document that breaks its parser affects no other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from processors.chunking import Boundaries, Cut, Source
from processors.chunking.sandbox import parser
from processors.chunking.sandbox.pool import ChunkingPool
from processors.embedders.local.tokenizer import tokenizer_path
from runtime.errors import LimitExceeded, Poison, Unavailable, UnsupportedContent
from tests.support.forked_parsers import ForkedPool
from tests.support.waiting import eventually

LIMIT_TOKENS = 254
TIMEOUT = timedelta(milliseconds=500)
MEMORY_BYTES = 2**30
PARSER = "processors.chunking.sandbox.child"
FAULTS = "tests.support.faulty_chunkers"


def document(kind: str = "text", content: str = "one line\n") -> Source:
    return Source(uri=f"{kind}.txt", content=content, kind=kind)


def children() -> set[int]:
    """Process ids of this process's children, zombies included.

    Children of earlier tests may be among them, and end at any time.
    """
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended; its children are another one's
            found.update(map(int, (task / "children").read_text().split()))
    return found


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_parser(pid: int) -> bool:
    try:
        return PARSER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:  # it has ended
        return False


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.fixture(scope="module")
async def pool() -> AsyncIterator[ChunkingPool]:
    """Pool whose parser is a child of this process, started as a worker does it.

    The tests share it, because a start takes most of a second of processor time.
    """
    async with ChunkingPool(1, TIMEOUT, MEMORY_BYTES, tokenizer_path(None), FAULTS) as started:
        yield started


@pytest.fixture
async def forked() -> AsyncIterator[ChunkingPool]:
    """Pool whose parser is replaced quickly."""
    async with ForkedPool(1, TIMEOUT, MEMORY_BYTES, tokenizer_path(None), FAULTS) as started:
        yield started


async def results(pool: ChunkingPool, sources: Sequence[Source]) -> list[Cut | Poison]:
    return await pool.cut(sources, LIMIT_TOKENS)


async def test_chunks_come_back_as_they_are_in_this_process(pool: ChunkingPool) -> None:
    """Chunks from a parser process equal those cut in this process."""
    from processors.chunking import cut
    from processors.embedders.local.tokenizer import TokenCounter

    source = Source("a.md", "# Title\n\ntext ünïcödé 漢字\n\n## Below\n\nmore\n", "markdown")
    expected = cut(source, LIMIT_TOKENS, TokenCounter(tokenizer_path(None)))
    assert await results(pool, [source]) == [expected]
    assert expected.chunks


async def test_a_parser_asks_for_distances_and_cuts_by_them(pool: ChunkingPool) -> None:
    """Both cuts of a document by topic equal those of this process."""
    from processors.chunking import cut
    from processors.embedders.local.tokenizer import TokenCounter

    count = TokenCounter(tokenizer_path(None))
    text = " ".join(f"Sentence {n} of this text says nothing about a café." for n in range(60))
    source = Source("a.txt", text, "text", strategy="semantic")
    [first] = await results(pool, [source])
    assert isinstance(first, Cut)
    assert [len(run) for run in first.asked] == [60]
    assert first == cut(source, LIMIT_TOKENS, count)
    measured = replace(source, boundaries=Boundaries([[n * 7919 % 9973 for n in range(60)]]))
    [second] = await results(pool, [measured])
    assert isinstance(second, Cut)
    assert (second.asked, second.chunks != first.chunks) == ((), True)
    assert second == cut(measured, LIMIT_TOKENS, count)


@pytest.mark.parametrize(
    ("fault", "kind_of_error", "words"),
    [
        ("crash", UnsupportedContent, "crashes"),
        ("spin", LimitExceeded, "too long"),
        ("sleep", LimitExceeded, "too long"),
        ("hoard", LimitExceeded, "memory"),
        ("abort", LimitExceeded, "memory"),
        ("refuse", LimitExceeded, "refused"),
        ("raise", UnsupportedContent, "surprise"),
        ("pdf", UnsupportedContent, "not a PDF"),
    ],
)
async def test_only_the_guilty_document_fails(
    forked: ChunkingPool, fault: str, kind_of_error: type[Poison], words: str
) -> None:
    """A document that breaks its parser fails with a reason; its neighbours are chunked."""
    sources = [document(), document(), document(fault), document(), document()]
    outcome = await results(forked, sources)
    error = outcome[2]
    assert isinstance(error, kind_of_error)
    assert words in str(error)
    assert [len(one.chunks) for one in outcome if not isinstance(one, Poison)] == [1, 1, 1, 1]


async def test_a_parser_that_was_stopped_condemns_nothing(pool: ChunkingPool) -> None:
    """A document whose parser was stopped is given to another parser."""
    for pid in filter(is_parser, children()):
        os.kill(pid, signal.SIGSTOP)
    (outcome,) = await results(pool, [document()])
    assert not isinstance(outcome, Poison)


async def test_a_busy_machine_condemns_nothing(forked: ChunkingPool) -> None:
    """The time limit counts processor time, so a slow machine fails no document."""
    (outcome,) = await results(forked, [Source("faulty/dawdle.txt", "slow\n", "text")])
    assert not isinstance(outcome, Poison)


async def test_an_answer_in_time_costs_no_look_at_the_processor_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The processor time of a parser is read only when an answer is late."""
    looks: list[int] = []
    monkeypatch.setattr(parser, "_processor_seconds", looks.append)
    patience = timedelta(minutes=1)
    async with ForkedPool(1, patience, MEMORY_BYTES, tokenizer_path(None), FAULTS) as patient:
        outcome = await results(patient, [document()] * 3)
    assert not any(isinstance(one, Poison) for one in outcome)
    assert looks == []


async def test_many_broken_documents_in_one_batch(forked: ChunkingPool) -> None:
    """Each crash is attributed to its own document."""
    kinds = ["crash", "text", "crash", "crash", "text", "crash"]
    outcome = await results(forked, [document(kind) for kind in kinds])
    assert [isinstance(one, Poison) for one in outcome] == [kind == "crash" for kind in kinds]


async def test_concurrent_batches_share_the_processes(pool: ChunkingPool) -> None:
    """Concurrent batches get their own results from the same processes."""
    before = set(filter(is_parser, children()))
    batches = [[document(content=f"batch {number}\n")] * 50 for number in range(8)]
    outcomes = await asyncio.gather(*(results(pool, batch) for batch in batches))
    for number, outcome in enumerate(outcomes):
        contents = {one.chunks[0].content for one in outcome if not isinstance(one, Poison)}
        assert contents == {f"batch {number}"}
    assert set(filter(is_parser, children())) == before


async def test_the_loop_runs_on_while_a_document_hangs(forked: ChunkingPool) -> None:
    """The event loop runs while a parser hangs."""
    task = asyncio.create_task(results(forked, [document("spin")]))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 10
    assert isinstance((await task)[0], LimitExceeded)


async def test_a_cancelled_batch_leaves_the_pool_usable(forked: ChunkingPool) -> None:
    """The batch after a cancelled one gets its own results."""
    task = asyncio.create_task(results(forked, [document("sleep"), document(content="old\n")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    outcome = await results(forked, [document(content="new\n")])
    assert not isinstance(outcome[0], Poison)
    assert outcome[0].chunks[0].content == "new"


async def test_no_process_is_left_after_close() -> None:
    """Closing ends every parser process, also a busy one."""
    before = children()
    pool = ChunkingPool(2, timedelta(seconds=5), MEMORY_BYTES, tokenizer_path(None), FAULTS)
    await pool.start()
    assert len(children() - before) == 2
    task = asyncio.create_task(results(pool, [document("sleep")]))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await pool.close()
    assert children() <= before


async def test_children_inherit_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser does not inherit the worker's environment variables with keys."""
    monkeypatch.setenv("HEADRACE_MODEL_API_KEY", "secret")
    before = children()
    async with ChunkingPool(1, timedelta(seconds=5), MEMORY_BYTES, tokenizer_path(None)):
        (child,) = children() - before
        assert b"secret" not in environment_of(child)


async def test_a_parser_ends_with_its_parent() -> None:
    """A parser ends when its worker is killed."""
    program = (
        "import asyncio, os, sys\n"
        "from datetime import timedelta\n"
        "from processors.chunking.sandbox.pool import ChunkingPool\n"
        "from processors.embedders.local.tokenizer import tokenizer_path\n"
        "async def main():\n"
        "    pool = ChunkingPool(1, timedelta(seconds=5), 2**30, tokenizer_path(None))\n"
        "    await pool.start()\n"
        "    children = open(f'/proc/self/task/{os.getpid()}/children').read()\n"
        "    print(children, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[5])},
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    parent.kill()
    await parent.communicate()
    await eventually(lambda: not runs(child), "the parser has ended")


async def test_a_pool_that_cannot_start_says_so(tmp_path: Path) -> None:
    """A pool without a tokenizer fails to start and leaves no process."""
    before = children()
    pool = ChunkingPool(1, timedelta(seconds=1), MEMORY_BYTES, tmp_path / "missing.json")
    with pytest.raises(Unavailable, match="tokenizer"):
        await pool.start()
    assert children() <= before


@pytest.mark.parametrize("interpreter", [sys.executable, "/nowhere/python"])
async def test_a_process_that_cannot_start_is_no_fault_of_the_document(
    interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser that can't start raises Unavailable and does not fail the document."""
    monkeypatch.setattr(sys, "executable", interpreter)
    pool = ChunkingPool(1, timedelta(seconds=1), MEMORY_BYTES, Path("/nowhere/tokenizer.json"))
    with pytest.raises(Unavailable, match="start"):
        await results(pool, [document()])

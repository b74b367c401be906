"""Queue of syncs in the background."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from gateway.sync.hook import queued


def test_one_runs_one_waits_and_the_others_leave_their_work_to_it(tmp_path: Path) -> None:
    """The one that waits begins after the one that runs, and others may wait from then on."""
    path = tmp_path / "sync.lock"
    order: list[str] = []

    def run(name: str, began: Event, end: Event) -> bool:
        with queued(path) as is_next:
            if is_next:
                order.append(name)
                began.set()
                end.wait()
                order.append(f"{name} ended")
            return is_next

    events = [Event() for _ in range(4)]
    first_began, first_end, second_began, second_end = events
    with ThreadPoolExecutor() as threads:
        first = threads.submit(run, "first", first_began, first_end)
        first_began.wait()
        others = [threads.submit(run, "second", second_began, second_end) for _ in range(3)]
        while sum(other.done() for other in others) < 2:
            assert order == ["first"]
        first_end.set()
        second_began.wait()
        third_began, third_end = Event(), Event()
        third = threads.submit(run, "third", third_began, third_end)
        second_end.set()
        third_began.wait()
        third_end.set()
        assert first.result()
        assert third.result()
        assert sorted(other.result() for other in others) == [False, False, True]
    assert order == ["first", "first ended", "second", "second ended", "third", "third ended"]

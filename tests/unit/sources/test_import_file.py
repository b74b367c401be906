from __future__ import annotations

import io
import json
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from events.models import content_hash
from runtime.errors import UsageError
from sources import Reason, Skip, document_changed
from sources.import_file import ImportSource, open_import
from sources.types import Details
from tests.support.syncs import Synced, begin, sync


def written(
    path: Path, *lines: dict[str, Any] | str, prune: bool = False, keep_going: bool = False
) -> ImportSource:
    """Source of a file with these lines."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return open_import(str(path), prune=prune, keep_going=keep_going)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.jsonl"


def brief(source: ImportSource, before: Synced) -> tuple[list[tuple[str, str, str]], Synced]:
    changes, after = sync(source, before)
    return [(change.change, change.uri, change.reason) for change in changes], after


def test_lines_become_documents_with_their_fields(file: Path) -> None:
    """A line's fields are those of its event; base64 and files are other forms of content."""
    (file.parent / "page.html").write_text("<h1>Weir</h1>")
    pdf = b"%PDF-1.4\n\xff"
    source = written(
        file,
        {
            "uri": "wiki/1",
            "content": "# Gate",
            "kind": "markdown",
            "title": "The gate",
            "metadata": {"space": "ops"},
            "permalink_template": "https://wiki.example.org/1",
        },
        {"uri": "wiki/2", "content_base64": b64encode(pdf).decode()},
        "",
        {"uri": "wiki/3", "path": "page.html", "media_type": "text/html"},
    )
    changes, _ = sync(source)
    first, second, third = (document_changed(change, "docs").data for change in changes)
    assert (first.content, first.kind, first.title) == ("# Gate", "markdown", "The gate")
    assert first.metadata == {"space": "ops"}
    assert first.permalink_template == "https://wiki.example.org/1"
    assert second.body == pdf
    assert (third.content, third.media_type) == ("<h1>Weir</h1>", "text/html")


def test_a_line_that_is_the_same_is_not_published_again(file: Path) -> None:
    """A second import publishes nothing; an edit of metadata alone, or of a named file, counts."""
    page = file.parent / "page.md"
    page.write_text("one")
    first, second = {"uri": "a", "content": "1"}, {"uri": "b", "path": "page.md"}
    _, before = sync(written(file, first, second))
    assert sync(written(file, second, first), before)[0] == []
    titled = first | {"title": "A"}
    changes, after = brief(written(file, titled, second), before)
    assert changes == [("upsert", "a", Reason.CHANGED)]
    assert sync(written(file, titled, second), after)[0] == []
    page.write_text("three")
    assert brief(written(file, titled, second), after)[0] == [("upsert", "b", Reason.CHANGED)]


def test_only_pruning_deletes_documents_that_the_file_does_not_name(file: Path) -> None:
    """Parts can be imported one after another, and come without publishing anything again."""
    one, two = {"uri": "a", "content": "1"}, {"uri": "b", "content": "2"}
    _, before = sync(written(file, one))
    changes, before = brief(written(file, two), before)
    assert changes == [("upsert", "b", Reason.NEW)]
    assert sync(written(file, one), before)[0] == [], "its state was kept"
    assert sorted(before.indexed) == ["a", "b"]
    assert brief(written(file, two, prune=True), before)[0] == [("delete", "a", Reason.DELETED)]
    deleted = written(file, {"uri": "a", "change": "delete"})
    changes, after = brief(deleted, before)
    assert (changes, sorted(after.indexed)) == ([("delete", "a", Reason.DELETED)], ["b"])


def test_pruning_by_a_file_without_lines_is_refused(file: Path) -> None:
    """The output of an exporter that failed deletes nothing."""
    with pytest.raises(UsageError, match="has no lines, and --prune would delete all"):
        sync(written(file, "\n", prune=True))
    assert sync(written(file, "\n"))[0] == []


def test_equal_texts_are_renames_only_with_pruning(file: Path) -> None:
    """Without pruning, a document with the text of another one is a copy of it."""
    _, before = sync(written(file, {"uri": "a", "content": "1"}))
    moved = {"uri": "b", "content": "1"}
    assert brief(written(file, moved), before)[0] == [("upsert", "b", Reason.NEW)]
    assert brief(written(file, moved, prune=True), before)[0] == [("rename", "b", Reason.RENAMED)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is not a JSON object"),
        ({"content": "1"}, "uri: is missing"),
        ({"uri": "b", "content": "1", "colour": 2}, "'colour' is not one of"),
        ({"uri": "b", "content": 1}, "content is not a string"),
        ({"uri": "b"}, "it needs one of"),
        ({"uri": "b", "content": "1", "path": "x"}, "it needs one of"),
        ({"uri": "b", "content": "1", "change": "delete"}, "it needs none of"),
        ({"uri": "b", "content": "1", "change": "rename"}, "neither upsert nor delete"),
        ({"uri": "b", "content": "1", "kind": "music"}, "kind: "),
        ({"uri": "b", "content": "1", "metadata": [1]}, "metadata: "),
        ({"uri": "b", "content": "\ud800"}, "half of a surrogate pair"),
        ({"uri": "b", "content_base64": "!"}, "not base64"),
        ({"uri": "b", "path": "missing.md"}, "missing.md can't be read"),
        ({"uri": "b", "path": "../outside.md"}, "is not below"),
        ({"uri": "b", "path": "/etc/passwd"}, "is not below"),
        ({"uri": "b", "path": "link.md"}, "is not below"),
        ({"uri": "a", "content": "2"}, "a is on line 1 already"),
        ({"uri": "b", "content": "1" * 1_200_000}, "it has more than"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_line_is_named_and_may_be_skipped(
    file: Path, line: dict[str, Any] | str, problem: str
) -> None:
    """Nothing is published because of an invalid line; by choice it is skipped, and none pruned."""
    (file.parent / "link.md").symlink_to("/etc/passwd")
    lines = ({"uri": "a", "content": "1"}, line)
    with pytest.raises(UsageError) as caught:
        sync(written(file, *lines))
    assert f"{file}, line 2: " in str(caught.value)
    assert problem in str(caught.value)
    _, before = sync(written(file, {"uri": "old", "content": "0"}))
    changes, after = brief(written(file, *lines, prune=True, keep_going=True), before)
    assert changes == [("upsert", "a", Reason.NEW)]
    assert after.report.skipped == Counter({Skip.INVALID: 1})
    assert after.report.skipped_paths == {f"{file}:2": Skip.INVALID}
    assert problem in after.report.problems[f"{file}:2"]


def test_standard_input_is_read_once_and_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a pipe are kept on disk, because they are read twice."""
    lines = b'{"uri": "a", "content": "1"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    with pytest.raises(UsageError, match="no name"):
        open_import("-")
    source = open_import("-", "crm")
    changes, _ = sync(source)
    assert (source.key, [change.content for change in changes]) == ("import:crm", ["1"])


def test_a_killed_import_publishes_again_whatever_is_in_doubt(file: Path) -> None:
    """Documents in doubt stay so while other files are imported."""
    one, two = {"uri": "a", "content": "1"}, {"uri": "b", "content": "2"}
    killed = begin(written(file, one))
    next(iter(killed))
    state = killed.state(killed.touched(0, 1))
    before = Synced(state=state, indexed={})
    _, before = sync(written(file, two), before)
    assert before.state.doubtful == {"a"}
    changes, after = brief(written(file, one), before)
    assert changes == [("upsert", "a", Reason.INTERRUPTED)]
    assert after.state.doubtful == frozenset()


def test_lost_details_are_published_again(file: Path) -> None:
    """A change of metadata that left the log before it was applied is published again."""
    one = {"uri": "a", "content": "1"}
    _, before = sync(written(file, one))
    source = written(file, one | {"title": "A"})
    run = begin(source, before)
    [change] = run
    assert change.details == Details(title="A")
    run.published(change, "live:0:1-0")
    state = run.state()
    lost = state.resolve(applied=(), rejected={}, present=())
    after = Synced(state=state, indexed=before.indexed)
    assert lost == {"a"}
    [again] = begin(source, after, lost=lost)
    assert (again.reason, again.target) == (Reason.LOST, content_hash("1"))

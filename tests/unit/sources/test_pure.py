from __future__ import annotations

import json
from datetime import timedelta

import pytest

from events.models import content_hash
from runtime.errors import UsageError
from sources.files import to_text, to_uri
from sources.ignore_rules import IgnoreRules, MatchTimeLimit, Rules
from sources.messages import document_changed
from sources.permalinks import permalink_template
from sources.state import DELETED, State, mark_of, skip_of, state_of
from sources.types import Change, IndexedDocument, Reason, Skip
from tests.support.syncs import MemorySource, Synced, begin


def indexed(**texts: str) -> Synced:
    """Index that holds the texts, of a source without a stored state."""
    return Synced(indexed={uri: IndexedDocument(content_hash(text)) for uri, text in texts.items()})


def steps(
    before: Synced, files: dict[str, str], similar: dict[str, str] | None = None
) -> list[tuple[str, ...]]:
    """Steps of a sync: change, uri, and the old uri of a rename."""
    changes = list(begin(MemorySource(files, similar or {}), before))
    return [
        (one.change, one.uri) if one.old_uri is None else (one.change, one.uri, one.old_uri)
        for one in changes
    ]


def test_a_first_sync_publishes_every_file_in_order() -> None:
    """A first sync publishes every file in order of uri."""
    assert steps(indexed(), {"b": "2", "a": "1"}) == [("upsert", "a"), ("upsert", "b")]


def test_edits_deletes_and_new_files_are_distinguished() -> None:
    """A sync publishes edits and new files, then deletes."""
    assert steps(indexed(a="1", b="2", c="3"), {"a": "1", "b": "4", "d": "5"}) == [
        ("upsert", "b"),
        ("upsert", "d"),
        ("delete", "c"),
    ]


def test_equal_texts_elsewhere_are_a_rename_and_each_old_file_is_used_once() -> None:
    """Two copies of a removed file are one rename and one new file."""
    assert steps(indexed(a="1"), {"x": "1", "y": "1"}) == [("rename", "x", "a"), ("upsert", "y")]


def test_a_copy_is_not_a_rename() -> None:
    """A copy beside its original is an upsert."""
    assert steps(indexed(a="1"), {"a": "1", "b": "1"}) == [("upsert", "b")]


def test_similar_files_are_renames_only_where_the_old_one_went_away() -> None:
    """A similar file is a rename only if the old file was removed."""
    now = {"new": "3", "kept": "2", "other": "4"}
    assert steps(indexed(old="1", kept="2"), now, {"new": "old", "other": "kept"}) == [
        ("rename", "new", "old"),
        ("upsert", "other"),
    ]


def test_swapped_files_are_two_edits() -> None:
    """Files whose uris both existed before are edits, not renames."""
    assert steps(indexed(a="1", b="2"), {"a": "2", "b": "1"}) == [("upsert", "a"), ("upsert", "b")]


def test_changes_on_their_way_are_not_published_twice() -> None:
    """A pending change is not published again unless the file changed since."""
    before = indexed(a="1", b="2", c="3")
    state = State(
        pending={
            "a": ("live:0:1-0", state_of(content_hash("4"))),
            "b": ("live:0:2-0", DELETED),
            "c": ("live:0:3-0", DELETED),
            "d": ("live:0:3-0", state_of(content_hash("3"))),
        }
    )
    run = begin(MemorySource({"a": "4", "d": "3"}), Synced(state, before.indexed))
    assert list(run) == []
    assert (run.report.waiting, run.report.unchanged) == (2, 0)
    assert steps(Synced(state, before.indexed), {"a": "1", "d": "3"}) == [("upsert", "a")]


def test_tokens_of_earlier_changes_are_settled() -> None:
    """Applied changes are dropped, refused ones kept with the reason, and vanished ones lost."""
    state = State(
        pending={uri: (f"live:0:{number}-0", uri) for number, uri in enumerate("abcd")}
        | {"old": ("live:0:1-0", DELETED)}
    )
    lost = state.resolve({"live:0:0-0"}, {"live:0:1-0": "too big"}, {"live:0:2-0"})
    assert lost == {"d"}
    assert state.pending == {"c": ("live:0:2-0", "c")}
    assert state.rejected == {"b": ("b", "too big")}


def test_a_refused_change_is_published_again_once_it_differs() -> None:
    """A refused change is published again if its text changed or all is published."""
    state = State(rejected={"a": (state_of(content_hash("1")), "too big")})
    run = begin(MemorySource({"a": "1"}), Synced(state))
    assert list(run) == []
    assert run.report.rejected == {"a": "too big"}
    assert run.report.unchanged == 0
    assert steps(Synced(state), {"a": "2"}) == [("upsert", "a")]
    [change] = begin(MemorySource({"a": "1"}), Synced(state), full=True)
    assert change.reason is Reason.FULL


def test_a_preview_says_of_every_change_why() -> None:
    """A preview gives the reason of each change."""
    before = indexed(same="0", edited="1", gone="2", old="3")
    source = MemorySource({"same": "0", "edited": "4", "new": "5", "moved": "3"})
    run = begin(source, before, read_all=True)
    assert [(step.uri, step.reason) for step in run.steps] == [
        ("moved", Reason.RENAMED),
        ("edited", Reason.CHANGED),
        ("new", Reason.NEW),
        ("gone", Reason.DELETED),
    ]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("naïve".encode(), "naïve"),
        (b"\xef\xbb\xbfmarked", "marked"),
        ("wide".encode("utf-16"), "wide"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'\n", "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (
            b"#!/bin/sh\n# vim: set fileencoding=cp1252 :\n\x80",
            "#!/bin/sh\n# vim: set fileencoding=cp1252 :\n€",
        ),
        (b"\x89PNG\r\n\0\0", Skip.BINARY),
        (b"text with a \0", Skip.BINARY),
        (b"caf\xe9", Skip.ENCODING),
        (b"\n\n# coding: latin-1\n\xe9", Skip.ENCODING),
        (b"# coding: no-such-thing\n\xe9", Skip.ENCODING),
        (b"# coding: hex\n\xe9", Skip.ENCODING),
        (b"# coding: rot13\n\xe9", Skip.ENCODING),
        (b"x = 'coding: latin-1 \xe9'", Skip.ENCODING),
        (b"\xff\xfe\x00", Skip.BINARY),
        (b"", Skip.EMPTY),
        (b" \n\t\n", Skip.EMPTY),
    ],
)
def test_text_is_read_by_what_the_file_says_of_itself(raw: bytes, expected: str | Skip) -> None:
    """Text is decoded by its byte order mark or declaration, without guessing."""
    assert to_text(raw) == expected


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        (
            "https://github.com/o/r.git",
            "https://github.com/o/r/blob/{commit}/{path}#L{start}-L{end}",
        ),
        ("git@github.com:o/r.git\n", "https://github.com/o/r/blob/{commit}/{path}#L{start}-L{end}"),
        (
            "ssh://git@github.com:22/o/r",
            "https://github.com/o/r/blob/{commit}/{path}#L{start}-L{end}",
        ),
        (
            "https://me:secret@gitlab.com/g/s/r.git",
            "https://gitlab.com/g/s/r/-/blob/{commit}/{path}#L{start}-{end}",
        ),
        (
            "git@gitlab.example.org:g/r.git",
            "https://gitlab.example.org/g/r/-/blob/{commit}/{path}#L{start}-{end}",
        ),
        (
            "https://codeberg.org/o/r",
            "https://codeberg.org/o/r/src/commit/{commit}/{path}#L{start}-L{end}",
        ),
        (
            "https://gitea.example.org:3000/o/r.git",
            "https://gitea.example.org:3000/o/r/src/commit/{commit}/{path}#L{start}-L{end}",
        ),
        (
            "ssh://git@forgejo.example.org:2222/o/r.git",
            "https://forgejo.example.org/o/r/src/commit/{commit}/{path}#L{start}-L{end}",
        ),
        (
            "https://github.com/o/{commit} x",
            "https://github.com/o/%7Bcommit%7D%20x/blob/{commit}/{path}#L{start}-L{end}",
        ),
        ("https://example.org/o/r.git", None),
        ("https://notgithub.com/o/r.git", None),
        ("/srv/git/github.com/r.git", None),
        ("file:///srv/github.git", None),
        ("https://github.com", None),
        ("http://[broken/o/r", None),
        ("origin", None),
        ("", None),
    ],
)
def test_permanent_links_are_made_of_the_remote(remote: str, expected: str | None) -> None:
    """Links are made for four forges from any form of their URLs, without credentials."""
    assert permalink_template(remote) == expected


def test_the_nearest_rule_that_matches_decides() -> None:
    """Rules of inner folders override those of outer ones, as in git."""
    time_limit = MatchTimeLimit()
    top = IgnoreRules(git=Rules(["*.log", "build/", "/only-here"], time_limit))
    inner = IgnoreRules(git=Rules(["!keep.log"], time_limit), base="inner/", parent=top)
    assert top.ignores("a.log")
    assert top.ignores("x/build/")
    assert not top.ignores("x/build")
    assert not top.ignores("x/only-here")
    assert inner.ignores("inner/a.log")
    assert not inner.ignores("inner/keep.log")
    assert inner.skip_folder("inner/.git") is Skip.IGNORED


def test_names_that_no_uri_can_hold_are_refused() -> None:
    """A name that is not UTF-8, or longer than the limit in bytes, gives no uri."""
    assert to_uri("a b\n'ü".encode()) == "a b\n'ü"
    assert to_uri(b"\xff") is None
    assert to_uri(b"x" * 2049) is None
    assert to_uri(("ü" * 1025).encode()) is None
    assert to_uri(("ü" * 1024).encode()) == "ü" * 1024


@pytest.mark.parametrize("line", ["!", "\\", "/\\", "![{-*]#a", ")\\-[?({-^]^", "}[\\-(b](}"])
def test_rules_that_make_no_sense_are_left_out(line: str) -> None:
    """Invalid rules are left out, and the others apply."""
    rules = Rules([line, "*.log"], MatchTimeLimit())
    assert rules.verdict("a.log")
    assert rules.verdict("a.md") is None


@pytest.mark.parametrize("line", ["*a*a*a*a*a", "**/a/**/a/**/a/**/a/**", "x/*****?*?*?*?*/y"])
def test_rules_that_take_for_ever_are_refused(line: str) -> None:
    """Rules with too many stars are refused."""
    with pytest.raises(UsageError, match="stars"):
        Rules([line], MatchTimeLimit())


def test_matching_ends_in_time() -> None:
    """Matching raises UsageError after its time limit."""
    rules = Rules(["*a*a*b"] * 20, MatchTimeLimit(timedelta(microseconds=10)))
    with pytest.raises(UsageError, match="too long to match"):
        rules.verdict("a" * 100)


def test_an_address_that_no_event_can_hold_gives_no_links() -> None:
    """A remote address that is too long gives no links."""
    assert permalink_template("https://github.com/owner/name") is not None
    assert permalink_template(f"https://github.com/owner/{'n' * 2000}") is None


def test_a_state_survives_json() -> None:
    """A state is equal after JSON; a missing one or one of another version is empty."""
    kept = State(
        files={"a": ("1", "f" * 64), "b": ("2", mark_of(Skip.ENCODING))},
        pending={"ü": ("live:0:1-0", state_of("0" * 64, ["y", "x"]))},
        rejected={"c": (DELETED, "no signature")},
        doubtful=frozenset({"d"}),
        commit="f" * 40,
        committed_at=7,
        rules="r",
    )
    assert State.from_json(json.loads(json.dumps(kept.to_json()))) == kept
    assert State.from_json(None) == State()
    assert State.from_json({"version": 1, "documents": {}}) == State()
    assert skip_of(mark_of(Skip.ENCODING)) is Skip.ENCODING


def test_ids_differ_by_project_and_repeat_for_the_same_change() -> None:
    """Event ids differ by project and are equal for the same change."""
    change = Change("upsert", "a", "w", Reason.NEW, content="text")
    first = document_changed(change, "one")
    assert first.id == document_changed(change, "one").id
    assert first.id != document_changed(change, "two").id
    assert first.data.content == "text"


def test_a_prefix_stands_before_uris_and_not_in_links() -> None:
    """A permanent link contains the path in the repository, without the prefix."""
    link = "https://github.com/o/r/blob/{commit}/{path}#L{start}-L{end}"
    change = Change("rename", "a b", "w", Reason.RENAMED, "old", "text", permalink_template=link)
    data = document_changed(change, "one", prefix="docs/").data
    assert (data.uri, data.old_uri) == ("docs/a b", "docs/old")
    assert data.permalink_template == link.replace("{path}", "a%20b")

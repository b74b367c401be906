from __future__ import annotations

import json
from datetime import timedelta

import pytest

from runtime.errors import UsageError
from sources.comparing import Step, steps
from sources.decoding import to_text
from sources.ignoring import IgnoreRules, MatchClock, Rules
from sources.messages import document_changed
from sources.naming import to_uri
from sources.permalinks import permalink_template
from sources.state import State
from sources.types import Change, Skip


def state(documents: dict[str, str], **skipped: str) -> State:
    kept = {uri: (fingerprint, Skip.BINARY) for uri, fingerprint in skipped.items()}
    return State("epoch", 1, documents, kept)


def test_a_first_sync_publishes_every_file_in_order() -> None:
    """Nothing is known before, so everything is new."""
    assert steps(None, {"b": "2", "a": "1"}, {}) == [
        Step("upsert", "a", "1"),
        Step("upsert", "b", "2"),
    ]


def test_the_same_state_needs_no_step() -> None:
    """Neither published nor skipped files are looked at again."""
    assert steps(state({"a": "1"}, image="9"), {"a": "1", "image": "9"}, {}) == []


def test_edits_deletes_and_new_files_are_told_apart() -> None:
    """Upserts come before deletes."""
    assert steps(state({"a": "1", "b": "2", "c": "3"}), {"a": "1", "b": "4", "d": "5"}, {}) == [
        Step("upsert", "b", "4"),
        Step("upsert", "d", "5"),
        Step("delete", "c"),
    ]


def test_equal_bytes_elsewhere_are_a_rename_and_each_old_file_is_used_once() -> None:
    """Two copies and one original: one rename, one new file."""
    assert steps(state({"a": "1"}), {"x": "1", "y": "1"}, {}) == [
        Step("rename", "x", "1", "a"),
        Step("upsert", "y", "1"),
    ]


def test_a_copy_is_not_a_rename() -> None:
    """The original is still there."""
    assert steps(state({"a": "1"}), {"a": "1", "b": "1"}, {}) == [Step("upsert", "b", "1")]


def test_similar_files_are_renames_only_where_the_old_one_went_away() -> None:
    """A hint that doesn't fit what is known is left alone."""
    before = state({"old": "1", "kept": "2"})
    now = {"new": "3", "kept": "2", "other": "4"}
    assert steps(before, now, {"new": "old", "other": "kept"}) == [
        Step("rename", "new", "3", "old"),
        Step("upsert", "other", "4"),
    ]


def test_swapped_files_are_two_edits() -> None:
    """Both uris exist before and after."""
    assert steps(state({"a": "1", "b": "2"}), {"a": "2", "b": "1"}, {}) == [
        Step("upsert", "a", "2"),
        Step("upsert", "b", "1"),
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
    """Marks and declarations are honoured; nothing is guessed."""
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
    """Four forges in every spelling of their URLs; secrets are dropped, others have no links."""
    assert permalink_template(remote) == expected


def test_the_nearest_rule_that_matches_decides() -> None:
    """Rules further down go before those further up, as in git."""
    clock = MatchClock()
    top = IgnoreRules(git=Rules(["*.log", "build/", "/only-here"], clock))
    inner = IgnoreRules(git=Rules(["!keep.log"], clock), base="inner/", above=top)
    assert top.ignores("a.log")
    assert top.ignores("x/build/")
    assert not top.ignores("x/build")
    assert not top.ignores("x/only-here")
    assert inner.ignores("inner/a.log")
    assert not inner.ignores("inner/keep.log")
    assert inner.skip_folder("inner/.git") is Skip.IGNORED


def test_names_that_no_uri_can_hold_are_refused() -> None:
    """Not UTF-8, or longer than the limit of uris, which is one of bytes."""
    assert to_uri("a b\n'ü".encode()) == "a b\n'ü"
    assert to_uri(b"\xff") is None
    assert to_uri(b"x" * 2049) is None
    assert to_uri(("ü" * 1025).encode()) is None
    assert to_uri(("ü" * 1024).encode()) == "ü" * 1024


@pytest.mark.parametrize("line", ["!", "\\", "/\\", "![{-*]#a", ")\\-[?({-^]^", "}[\\-(b](}"])
def test_rules_that_make_no_sense_are_left_out(line: str) -> None:
    """As git does; the others hold."""
    rules = Rules([line, "*.log"], MatchClock())
    assert rules.verdict("a.log")
    assert rules.verdict("a.md") is None


@pytest.mark.parametrize("line", ["*a*a*a*a*a", "**/a/**/a/**/a/**/a/**", "x/*****?*?*?*?*/y"])
def test_rules_that_take_for_ever_are_refused(line: str) -> None:
    """Each star multiplies the time of a match by the length of the path."""
    with pytest.raises(UsageError, match="stars"):
        Rules([line], MatchClock())


def test_matching_ends_in_time() -> None:
    """Rules that are each quick enough may still be too many."""
    rules = Rules(["*a*a*b"] * 20, MatchClock(timedelta(microseconds=10)))
    with pytest.raises(UsageError, match="too long to match"):
        rules.verdict("a" * 100)


def test_an_address_that_no_event_can_hold_gives_no_links() -> None:
    """A remote's address is whatever a repository says."""
    assert permalink_template("https://github.com/owner/name") is not None
    assert permalink_template(f"https://github.com/owner/{'n' * 2000}") is None


def test_a_state_survives_json() -> None:
    """What is kept in the database is what was given."""
    kept = State("epoch", 3, {"a": "1"}, {"b": ("2", Skip.ENCODING)}, "f" * 40, "target")
    assert State.from_json(json.loads(json.dumps(kept.to_json()))) == kept
    assert State.from_json(None) is None
    assert State.from_json({"version": 0}) is None


def test_ids_differ_by_project_and_repeat_for_the_same_change() -> None:
    """The same change in two projects is two events."""
    change = Change("upsert", "a", "key", content="text")
    first = document_changed(change, "one")
    assert first.id == document_changed(change, "one").id
    assert first.id != document_changed(change, "two").id
    assert first.data.content == "text"

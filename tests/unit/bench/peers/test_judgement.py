"""Faults of an index that a comparison finds."""

from __future__ import annotations

from bench.peers.judgement import Faults, judge

FILE = "def old():\n    return 1\n\ndef new():\n    return 2\n"
HALVES = [("a.py", "def old():\n    return 1"), ("a.py", "def new():\n    return 2\n")]


def test_a_whole_index_has_no_faults() -> None:
    """Chunks may be trimmed, overlap, and share a line."""
    overlapping = [("a.py", "def old():\n    return 1\n\ndef new():"), HALVES[1]]
    shared = [("a.py", "def old():\n    return 1\n\ndef ne"), ("a.py", "w():\n    return 2")]
    for chunks in (HALVES, overlapping, shared):
        assert judge({"a.py": FILE}, chunks) == Faults()
    assert judge({"a.py": f"\ufeff{FILE}"}, HALVES) == Faults()
    assert str(Faults()) == "none"


def test_a_lost_document_is_found() -> None:
    assert judge({"a.py": FILE, "b.py": "x = 1"}, HALVES) == Faults(lost=1)


def test_half_a_document_is_found() -> None:
    assert judge({"a.py": FILE}, HALVES[:1]) == Faults(incomplete=1)


def test_a_deleted_document_is_found() -> None:
    assert judge({"a.py": FILE}, [*HALVES, ("b.py", "x = 1")]) == Faults(surplus=1)


def test_an_old_version_beside_the_new_one_is_found() -> None:
    mixed = [*HALVES, ("a.py", "def older():\n    return 0")]
    assert judge({"a.py": FILE}, mixed) == Faults(outdated=1)


def test_doubled_chunks_are_found_unless_their_text_is_repeated() -> None:
    faults = judge({"a.py": FILE}, [*HALVES, *HALVES, HALVES[0]])
    assert faults == Faults(doubled=3)
    assert str(faults) == "3 doubled"
    assert judge({"a.py": "pass\npass\n"}, [("a.py", "pass"), ("a.py", "pass")]) == Faults()

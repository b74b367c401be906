"""Report of a sync as lines for people."""

from __future__ import annotations

from collections import Counter

from gateway.sync.report import SyncReport, describe


def test_a_preview_says_what_is_to_be_done() -> None:
    """Nothing was published or deleted yet."""
    report = SyncReport("docs", "/docs", "directory", found=1, published=1, deleted=2)
    assert [*describe(report, is_preview=True)] == [
        "directory docs: 1 file found, 0 unchanged, 1 to publish, 2 to delete, 0 skipped"
    ]
    assert [*describe(report)] == [
        "directory docs: 1 file found, 0 unchanged, 1 published, 2 deleted, 0 skipped"
    ]


def test_skipped_lines_of_an_import_have_their_problem_and_order() -> None:
    """Line 2 is listed before line 10, each with what is wrong with it."""
    paths = {f"a.jsonl:{line}": "invalid" for line in (10, 2, 11)}
    report = SyncReport(
        "a.jsonl",
        "/a.jsonl",
        "import",
        found=3,
        skipped=Counter(paths.values()),
        skipped_paths=paths,
        problems={path: f"problem of {path}" for path in paths},
    )
    assert [*describe(report, skipped=True)] == [
        "import a.jsonl: 3 lines found, 0 unchanged, 0 published, 0 deleted, 3 skipped (invalid 3)",
        *(f"skipped (invalid): a.jsonl:{n}: problem of a.jsonl:{n}" for n in (2, 10, 11)),
    ]
    assert "problems" not in report.to_json()

"""The demo's citations really hold the answers."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import Cli

HELD = {
    "Which disaster loses publishes of the last second?": "publishes of the last second",
    "How long do dead letters stay?": "Dead letters stay until somebody",
    "Why does the embedded Postgres run as nobody when we are root?": "refuses to run as root",
    "Where are stream and key names built?": "built here and nowhere else",
}


async def test_demo_answers_from_this_repository(tmp_path: Path) -> None:
    """Each question is answered by a chunk that holds the answer."""
    cli = Cli(
        {"HEADRACE_HOME": str(tmp_path), "HEADRACE_REDIS_URL": "", "HEADRACE_DATABASE_URL": ""}
    )
    shown = (await cli("demo", "--json")).json
    assert shown["sync"]["found"] == shown["sync"]["indexed"] + sum(
        shown["sync"]["skipped"].values()
    )
    answers = {one["question"]: one for one in shown["answers"]}
    assert answers.keys() == HELD.keys()
    for question, held in HELD.items():
        # a sentence may be wrapped anywhere
        content = " ".join(answers[question]["content"].split())
        assert held in content, answers[question]["citations"]
        assert ":" in answers[question]["citations"][0]

"""API keys by the commands that a person types."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import Cli, environment_of
from tests.support.databases import Database


async def test_keys_are_added_listed_and_retired(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A key is printed once; the list has no secret; a wrong option is one line."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    printed = (await cli.typed("api-keys", "add", "--project", "docs")).stdout
    name, _, key = printed.strip().partition("=")
    assert (name, len(key)) == ("HEADRACE_API_KEY", 55)
    options = ("--operator", "--may", "ask,operate", "--expires", "90d", "--agent", "ann")
    added = (await cli("api-keys", "add", *options, "--requests-per-minute", "9", "--json")).json
    assert added["rights"] == ["ask", "operate"]
    assert (added["project"], added["agent"]) == (None, "ann")
    assert added["expires_at"] is not None

    listed = await cli("api-keys", "list", "--json", HEADRACE_API_KEY=key)
    of_project, of_operator = listed.objects
    assert (of_project["project"], of_project["rights"]) == ("docs", ["ask", "read"])
    assert (of_operator["key_id"], of_operator["requests_per_minute"]) == (added["key_id"], 9)
    assert key.split("_", 2)[2] not in listed.stdout
    table = (await cli("api-keys", "list", "--project", "docs")).stdout
    assert of_project["key_id"] in table
    assert added["key_id"] not in table

    assert (await cli("api-keys", "retire", of_project["key_id"])).code == 0
    assert (await cli("api-keys", "list", "--json")).objects[0]["retired_at"] is not None
    for arguments, error in (
        (("retire", of_project["key_id"]), "no active API key"),
        (("add",), "--project NAME, or --operator"),
        (("add", "--operator", "--project", "docs"), "--project NAME, or --operator"),
        (("add", "--project", "docs", "--may", "operate"), "right to operate"),
        (("add", "--project", "docs", "--may", "write"), "ask, read, publish, operate"),
        (("add", "--project", "docs", "--expires", "soon"), "write 90d"),
        (("add", "--project", "Docs"), "--project 'Docs'"),
        (("add", "--project", "docs", "--agent", "*"), "--agent '*'"),
    ):
        assert error in (await cli("api-keys", *arguments)).line

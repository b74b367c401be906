"""The shell that runs the blocks of the documentation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.shell import shell

ENVIRONMENT = {"PATH": os.environ["PATH"]}


async def test_blocks_share_variables_and_a_directory(tmp_path: Path) -> None:
    async with shell(tmp_path, ENVIRONMENT) as lines:
        assert await lines.run("name=heron\nexport place=reed\n") == ""
        assert await lines.run("sh -c 'echo $place'; echo $name; cat\n") == "reed\nheron\n"
        assert await lines.run("pwd\n") == f"{tmp_path}\n"


@pytest.mark.parametrize("command", ["false", "false | cat", "echo $nothing", "value=$(false)"])
async def test_a_command_that_fails_ends_the_block(tmp_path: Path, command: str) -> None:
    async with shell(tmp_path, ENVIRONMENT) as lines:
        with pytest.raises(AssertionError, match="output:\nbefore\n"):
            await lines.run(f"echo before\n{command}\necho after\n")

"""Output of `headrace access` for each role."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from gateway.commands.access import _as_user


@pytest.mark.parametrize(
    "url",
    [
        "redis://owner:owners@localhost:6379/0",
        "redis://localhost:6379/0?username=owner&password=owners",
        "postgresql://localhost/headrace?user=owner&password=owners&host=/run/postgresql",
        "postgresql:///headrace?user=owner&passfile=/owners&host=/run/postgresql",
    ],
)
def test_a_roles_url_names_that_role_and_nothing_of_the_owner(url: str) -> None:
    """A role's URL keeps host and path of the owner's URL, and replaces its user and password."""
    found = urlsplit(_as_user(url, "headrace_worker", "the-new-password"))
    assert (found.username, found.password) == ("headrace_worker", "the-new-password")
    assert "owner" not in found.geturl()
    assert found.path == urlsplit(url).path
    places = [pair for pair in parse_qsl(urlsplit(url).query) if pair[0] == "host"]
    assert parse_qsl(found.query) == places

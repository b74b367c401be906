"""Check of the signing key before anything is published."""

from __future__ import annotations

from events.signing import SigningKey
from gateway.clients import open_database
from runtime.errors import UsageError
from runtime.settings import Settings
from store.projects import Projects
from store.publisher_keys import PublisherKeys

__all__ = ["check_signing_key"]


async def check_signing_key(settings: Settings, project: str) -> None:
    """Check that the project accepts changes signed with the key of the settings.

    Raises:
        UsageError: the project requires signed changes, and the key is missing or not active.
        ConfigurationError: the setting is not a key.
        Unavailable: Postgres can't be reached.
    """
    async with open_database(settings) as database:
        wanted = await PublisherKeys(database, Projects(database)).active_ids(project)
    if not wanted:
        return
    text = settings.signing_key.get_secret_value()
    if not text:
        raise UsageError(
            f"{project} requires signed changes; set HEADRACE_SIGNING_KEY to one of its keys"
        )
    key_id = SigningKey.parse(text).id
    if key_id not in wanted:
        raise UsageError(
            f"HEADRACE_SIGNING_KEY holds {key_id}, which is not an active key of {project}; "
            f"use one of {', '.join(sorted(wanted))}"
        )

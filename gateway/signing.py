"""Before anything is published: would the project take it?"""

from __future__ import annotations

from events.signing import SigningKey
from gateway.clients import open_database
from runtime.errors import UsageError
from runtime.settings import Settings
from store.projects import Projects
from store.publisher_keys import PublisherKeys

__all__ = ["check_signing_key"]


async def check_signing_key(settings: Settings, project: str) -> None:
    """Make sure that what is signed with the key of the settings isn't refused for that.

    Raises:
        UsageError: the project takes signed changes only, and there is no key, or another one.
        ConfigurationError: the setting is no key.
        Unavailable: Postgres can't be reached.
    """
    async with open_database(settings) as database:
        wanted = await PublisherKeys(database, Projects(database)).active_ids(project)
    if not wanted:
        return
    text = settings.signing_key.get_secret_value()
    if not text:
        raise UsageError(
            f"{project} takes signed changes only: set HEADRACE_SIGNING_KEY to a key of it"
        )
    key_id = SigningKey.parse(text).id
    if key_id not in wanted:
        raise UsageError(
            f"{key_id}, the key of HEADRACE_SIGNING_KEY, is no active key of {project}: "
            f"its keys are {', '.join(sorted(wanted))}"
        )

"""Servers with a user for each role, as ``headrace access`` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from events.names import Names
from events.server.acl import Role, hash_of, put_user, user_name, user_rules
from events.server.connection import check_server, connect

__all__ = ["NAMES", "Doors", "open_doors"]

NAMES = Names()
_PASSWORD = "no-secret-at-all"  # noqa: S105 - of servers that end with their test


@dataclass(frozen=True)
class Doors:
    """Redis with users. ``ties_keys``: its rules can limit a command to some keys."""

    admin_url: str
    ties_keys: bool

    def url(self, role: Role) -> str:
        """URL of the server as a role."""
        user = f"{user_name(role, NAMES.prefix)}:{_PASSWORD}@"
        scheme, _, rest = self.admin_url.partition("://")
        return f"{scheme}://{user}{rest.rpartition('@')[2]}"


async def open_doors(redis_url: str) -> Doors:
    """Make the users of all roles on a server."""
    async with connect(redis_url) as admin:
        version = (await check_server(admin)).version
        for role in Role:
            rules = user_rules(role, NAMES.prefix, version)
            await put_user(admin, user_name(role, NAMES.prefix), rules, [hash_of(_PASSWORD)])
    return Doors(redis_url, ties_keys=version >= (7,))

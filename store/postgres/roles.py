"""Postgres roles with the permissions that their processes need; migrations grant these."""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64encode
from collections.abc import Mapping

import asyncpg

from runtime.errors import ConfigurationError
from store.postgres.connection import connect, explained
from store.postgres.named_queries import named

__all__ = [
    "ANSWERER",
    "GATEWAY",
    "OPERATOR",
    "PUBLISHER",
    "WORKER",
    "scram_verifier",
    "set_passwords",
    "take_role",
]

PUBLISHER = "headrace_publisher"
ANSWERER = "headrace_answerer"
WORKER = "headrace_worker"
OPERATOR = "headrace_operator"
GATEWAY = "headrace_gateway"

_QUERIES = named("roles")
_SCRAM_ITERATIONS = 4096
_SALT_BYTES = 16


async def take_role(
    connection: asyncpg.Connection, role: str, *, in_transaction: bool = False
) -> None:
    """Switch the session, or one transaction, to ``role`` if the connected user is a member of it.

    Otherwise the session keeps its role: an answerer cannot become a worker.

    Raises:
        asyncpg.UndefinedObjectError: the role does not exist.
    """
    await connection.execute(_QUERIES["take_role"], role, in_transaction)


async def set_passwords(owner_url: str, passwords: Mapping[str, str]) -> None:
    """Enable login with a password for each role, all or none. No password is sent to the server.

    Raises:
        Unavailable: the server cannot be reached.
        ConfigurationError: the owner lacks the permission, or a role does not exist yet.
    """
    connection = await connect(owner_url)
    try:
        async with connection.transaction():
            for role, password in passwords.items():
                await connection.execute(
                    f"alter role {role} login password '{scram_verifier(password)}'"
                )
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"Postgres denied permission: {error}",
            "name a superuser in HEADRACE_OWNER_DATABASE_URL, or the user that created these roles",
        ) from None
    except asyncpg.UndefinedObjectError as error:
        raise ConfigurationError(str(error), "run `headrace migrate` first") from None
    except asyncpg.PostgresError:
        with explained():
            raise
    finally:
        await connection.close()


def scram_verifier(
    password: str, salt: bytes | None = None, iterations: int = _SCRAM_ITERATIONS
) -> str:
    """SCRAM verifier that Postgres stores for an ASCII password (RFC 5803), not the password."""
    salt = os.urandom(_SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${iterations}:{encoded[0]}${encoded[1]}:{encoded[2]}"

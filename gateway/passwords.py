"""Passwords of roles: from settings, from files in a directory, or generated."""

from __future__ import annotations

import re
import secrets

from events.access import Role
from runtime.errors import ConfigurationError
from runtime.settings import Settings

__all__ = ["generated_password", "given_password"]

_SOUND = re.compile(r"[!-~]{12,128}")
_GENERATED_BYTES = 24


def given_password(settings: Settings, role: Role) -> str:
    """Read the password of a role from the settings or its file; empty if neither is given.

    Raises:
        ConfigurationError: the password has the wrong length or invalid characters, its file
            can't be read, or the directory does not exist.
    """
    variable = f"HEADRACE_{role.upper()}_PASSWORD"
    password = str(getattr(settings, f"{role}_password").get_secret_value())
    if not password and settings.passwords_directory is not None:
        file = settings.passwords_directory / role
        variable = str(file)
        if not file.parent.is_dir():
            raise ConfigurationError(
                f"HEADRACE_PASSWORDS_DIRECTORY: {file.parent} is not a directory; create it,"
                " or leave the setting out"
            )
        try:
            password = file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{file} can't be read: {error}") from None
    if password and _SOUND.fullmatch(password) is None:
        raise ConfigurationError(f"{variable} must have 12 to 128 ASCII characters and no spaces")
    return password


def generated_password() -> str:
    """Generate a password that needs no escaping in URLs."""
    return secrets.token_urlsafe(_GENERATED_BYTES)

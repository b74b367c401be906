"""Where the passwords of roles come from: settings, a directory of files, or chance."""

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
    """The password that the settings name for a role; empty: none.

    Raises:
        ConfigurationError: it is too short or has other characters; or its file can't be
            read, or the directory isn't there.
    """
    variable = f"HEADRACE_{role.upper()}_PASSWORD"
    password = str(getattr(settings, f"{role}_password").get_secret_value())
    if not password and settings.passwords_directory is not None:
        file = settings.passwords_directory / role
        variable = str(file)
        if not file.parent.is_dir():
            raise ConfigurationError(
                f"HEADRACE_PASSWORDS_DIRECTORY: {file.parent} is no directory; make it,"
                " or leave the setting out"
            )
        try:
            password = file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{file} can't be read: {error}") from None
    if password and _SOUND.fullmatch(password) is None:
        raise ConfigurationError(f"{variable} must be 12 to 128 ASCII characters without blanks")
    return password


def generated_password() -> str:
    """A new one, fit for URLs."""
    return secrets.token_urlsafe(_GENERATED_BYTES)

"""Check for environment variables that look like settings but are not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from runtime.errors import UnknownSetting
from runtime.settings import Settings

__all__ = ["require_known"]

_PREFIX = "HEADRACE_"
_SETTINGS = sorted(name.upper() for name in Settings.model_fields)
_OTHERS = re.compile(
    r"HEADRACE_(?:TEST_\w+|OWNER_PASSWORD|"
    r"(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(?:TCP|UDP)\w*))"
)
"""Variables of the tests and of docker-compose.yml, and variables that Kubernetes sets in every pod
for a service whose name begins with ``headrace``."""


def require_known(variables: Iterable[str]) -> None:
    """Check that each variable with the prefix HEADRACE_ is a setting.

    Raises:
        UnknownSetting: a variable is not; the message names it and the most similar setting.
    """
    for variable in sorted(variables):
        name = variable.upper()
        if (
            not name.startswith(_PREFIX)
            or name.removeprefix(_PREFIX) in _SETTINGS
            or _OTHERS.fullmatch(name)
        ):
            continue
        nearest = get_close_matches(name.removeprefix(_PREFIX), _SETTINGS, n=1)
        cure = f"did you mean {_PREFIX}{nearest[0]}?" if nearest else "unset it;"
        raise UnknownSetting(f"{variable} is not a setting: {cure} docs/runbook.md lists all")

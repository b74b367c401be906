"""Names of files and folders that a sync leaves out by default, with the reason."""

from __future__ import annotations

import re
from collections.abc import Container

from sources.types import Skip

__all__ = ["file_reason", "folder_reason", "marked_reason", "markers"]

_PRIVATE_FOLDERS = ".ssh .gnupg .aws .azure .kube .password-store"
_DEPENDENCY_FOLDERS = """
    node_modules bower_components jspm_packages site-packages dist-packages .venv .tox .nox .eggs
    .bundle .yarn .pnpm-store .npm .nvm .pyenv .rbenv .rustup .m2 .gradle .terraform .direnv
    .virtualenvs"""
_GENERATED_FOLDERS = """
    __pycache__ .mypy_cache .pytest_cache .ruff_cache .hypothesis .ipynb_checkpoints .next .nuxt
    .svelte-kit .parcel-cache .turbo .angular .dart_tool .cache htmlcov .nyc_output"""
_FOLDERS = {
    name: reason
    for reason, names in (
        (Skip.SECRET, _PRIVATE_FOLDERS),
        (Skip.DEPENDENCY, _DEPENDENCY_FOLDERS),
        (Skip.GENERATED, _GENERATED_FOLDERS),
        (Skip.HOME, ".headrace"),
    )
    for name in names.split()
}
_FOLDER_ENDINGS = (".egg-info", ".dist-info")
"""Folders of package metadata, which Python writes beside the packages it installs or builds."""

_BUILD_FILES = frozenset(
    {"pyproject.toml", "setup.py", "setup.cfg", "package.json", "build.gradle"}
    | {"build.gradle.kts", "settings.gradle", "settings.gradle.kts", "pom.xml", "CMakeLists.txt"}
)
_BUILT_BY = {
    "build": _BUILD_FILES,
    "dist": _BUILD_FILES,
    "target": frozenset({"pom.xml", "Cargo.toml", "build.sbt"}),
}
"""Folders with ambiguous names: they hold build results only beside one of these files."""

_MARKERS = {
    "pyvenv.cfg": Skip.DEPENDENCY,
    "conda-meta": Skip.DEPENDENCY,
    "CACHEDIR.TAG": Skip.GENERATED,
    "CMakeCache.txt": Skip.GENERATED,
}
"""Reason to leave out a folder of any name, by the name of a file or folder in it."""

_SERVERS = ("redis", "postgres")
_HOME_FILES = ("worker.log", "up.json")
"""Files that, beside the servers' folders, mark a home of Headrace that is not in the settings."""

_LOCK_FILES = """
    uv.lock poetry.lock pdm.lock pipfile.lock pixi.lock pylock.toml conda-lock.yml
    requirements.lock requirements-dev.lock package-lock.json .package-lock.json
    npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb deno.lock cargo.lock go.sum
    go.work.sum composer.lock gemfile.lock gems.locked mix.lock rebar.lock pubspec.lock
    podfile.lock package.resolved cartfile.resolved packages.lock.json paket.lock flake.lock
    gradle.lockfile buildscript-gradle.lockfile module.bazel.lock stack.yaml.lock
    cabal.project.freeze chart.lock .terraform.lock.hcl renv.lock shard.lock"""
_PRIVATE_FILES = """
    .netrc _netrc .pgpass .pypirc .my.cnf .mylogin.cnf .git-credentials .htpasswd .vault-token
    .boto .s3cfg .dockercfg .terraformrc terraform.rc credentials.tfrc.json .rediscli_auth
    application_default_credentials.json"""
_FILES = {
    name: reason
    for reason, names in ((Skip.LOCK_FILE, _LOCK_FILES), (Skip.SECRET, _PRIVATE_FILES))
    for name in names.split()
}
_SECRETS_IN = {
    "config.json": (".docker",),
    "auth.json": (".docker", "containers", ".composer"),
    "hosts.yml": ("gh",),
    "credentials": (".cargo", ".gem"),
    "credentials.toml": (".cargo",),
    "credentials.db": ("gcloud",),
    "access_tokens.db": ("gcloud",),
}
"""Folders in which a file with an ordinary name holds credentials."""

_FILE_PATTERN = re.compile(
    r"""
    (?P<secret>
        # .env.example, .env.production.sample and example.env show which names are to be filled in
        (?! .*(?:example|sample|template|tmpl|dist)(?:\.env)? \Z )
        (?: \.env (?: rc | [^a-z].* )? | .+\.env )
      | id_(?:rsa|dsa|ecdsa|ed25519) (?: [._-].* )? (?<!\.pub)
      | .+\.(?: pem | key | p12 | pfx | p8 | pkcs12 | kdbx? | jks | keystore | ppk
              | tfstate (?:\..+)? )
      | \.\w*_?history
    )
  | (?P<minified> .+[.-]min\.(?:[cm]?js|css) )
  | (?P<generated>
        .+\.(?:[cm]?[jt]sx?|css)\.map
      | .+_pb2(?:_grpc)?\.pyi?
      | .+\.pb(?:\.gw)?\.(?:go|cc|h)
    )
    """,
    re.VERBOSE,
)
_MATCHED = {"secret": Skip.SECRET, "minified": Skip.MINIFIED, "generated": Skip.GENERATED}


def folder_reason(path: str, siblings: Container[str] | None) -> Skip | None:
    """Reason to leave out a folder as a whole, by its name and the names beside it.

    Args:
        path: relative to the source, without a slash at the end.
        siblings: names in the parent folder. If None, ambiguous names such as ``build`` or ``dist``
            are not left out.
    """
    parent, _, name = path.rpartition("/")
    lower = name.lower()
    reason = _FOLDERS.get(lower)
    if reason is not None:
        return reason
    if lower.endswith(_FOLDER_ENDINGS):
        return Skip.GENERATED
    if lower == "gcloud" and parent.endswith(".config"):
        return Skip.SECRET
    if siblings is not None and any(file in siblings for file in _BUILT_BY.get(name, ())):
        return Skip.GENERATED
    return None


def marked_reason(names: Container[str]) -> Skip | None:
    """Reason to leave out a folder as a whole, by the names in it."""
    if all(name in names for name in _SERVERS) and any(name in names for name in _HOME_FILES):
        return Skip.HOME
    return next((reason for marker, reason in _MARKERS.items() if marker in names), None)


def markers() -> frozenset[str]:
    """Names that ``marked_reason`` looks for."""
    return frozenset(_MARKERS)


def file_reason(path: str) -> Skip | None:
    """Reason to leave out a file, by its name; ``path`` is relative to the source."""
    folder, _, name = path.rpartition("/")
    lower = name.lower()
    reason = _FILES.get(lower)
    if reason is not None:
        return reason
    if lower in _SECRETS_IN and folder.rpartition("/")[2].lower() in _SECRETS_IN[lower]:
        return Skip.SECRET
    match = _FILE_PATTERN.fullmatch(lower)
    return _MATCHED[str(match.lastgroup)] if match else None

"""A virtual environment with a wheel of this tree and what its base install needs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile, ZipInfo

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.forking import ROOT

__all__ = ["BareInstall", "install_client"]

_SECONDS = 100.0


@dataclass(frozen=True)
class BareInstall:
    """An environment at ``path`` that holds the packages ``installed`` and the wheel's own."""

    path: Path
    installed: frozenset[str]

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment's ``bin``, which sees nothing of this tree."""
        return subprocess.run(
            [self.path / "bin" / program, *arguments],
            cwd=self.path,
            env={name: value for name, value in os.environ.items() if "PYTHON" not in name},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )


def install_client(path: Path, project: Path = ROOT) -> BareInstall:
    """Build a project's wheel and install it without extras into a new environment at ``path``.

    Nothing is downloaded: what the wheel requires is linked from the environment of the tests. A
    module that the wheel needs without requiring it is therefore absent.
    """
    [wheel] = _built(project, path / "dist")
    venv.create(path, with_pip=False, symlinks=True)
    required = _closure(PathDistribution(ZipPath(wheel, _metadata_of(wheel))).requires or ())
    site_packages = Path(
        sysconfig.get_path("purelib", "venv", vars={"base": str(path), "platbase": str(path)})
    )
    for name in required:
        _link(name, site_packages)
    # with the check of requirements, from the packages that are there
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(path)]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheel)], check=True)
    return BareInstall(path, frozenset(required))


def _built(project: Path, directory: Path) -> list[Path]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return list(directory.glob("*.whl"))


def _metadata_of(wheel: Path) -> str:
    """The folder of the wheel that holds its metadata."""
    with ZipFile(wheel) as archive:
        [metadata] = [file for file in archive.infolist() if _is_metadata(file)]
    return f"{Path(metadata.filename).parent}/"


def _is_metadata(file: ZipInfo) -> bool:
    return file.filename.endswith(".dist-info/METADATA")


def _closure(requirements: Iterable[str]) -> set[str]:
    """Names of the packages that a base install brings, with those that they need in turn."""
    names = set[str]()
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed = _closure(distribution(requirement.name).requires or ())
            names |= {canonicalize_name(requirement.name)} | needed
    return names


def _link(name: str, site_packages: Path) -> None:
    """Link the files of a package, apart from its programs."""
    for file in distribution(name).files or ():
        if ".." not in file.parts:
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(file.locate())).resolve())

"""Scripts and styles of other projects are the published ones."""

from __future__ import annotations

import hashlib
import tomllib

from tests.support.forking import ROOT

VENDOR = ROOT / "gateway" / "web" / "static" / "vendor"
PACKAGES = tomllib.loads((VENDOR / "vendor.toml").read_text())["package"]


def test_each_file_has_the_hash_of_the_table() -> None:
    hashes = {
        name: entry["sha256"] for package in PACKAGES for name, entry in package["files"].items()
    }
    files = [path for path in VENDOR.iterdir() if path.name != "vendor.toml"]
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == hashes


def test_each_package_comes_with_its_licence() -> None:
    for package in PACKAGES:
        assert package["version"]
        assert package["licence"] in {"0BSD", "MIT"}
        assert any("LICENSE" in name for name in package["files"])


def test_nothing_is_loaded_from_elsewhere() -> None:
    pages = [*(VENDOR.parents[1] / "templates").iterdir(), *VENDOR.parent.glob("page.*")]
    for path in pages:
        text = path.read_text()
        assert "//" not in text.replace("// ", "").replace("<!doctype", ""), path.name
        assert " style=" not in text, path.name
        assert " onclick" not in text, path.name

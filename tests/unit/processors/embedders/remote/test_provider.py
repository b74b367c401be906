"""Import of the library for model providers."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from processors.embedders.remote import provider

FAILING_ONCE = """
import os
import litellm.part
if not os.path.exists("tried"):
    open("tried", "w").close()
    raise ImportError("a part of it is missing")
"""
TWO_LOADS = """
from contextlib import suppress
from processors.embedders.remote import provider
with suppress(ImportError):
    provider._load_litellm()
    raise SystemExit("the first import has not failed")
litellm = provider._load_litellm()
assert litellm.part.litellm is litellm
"""


def test_threads_import_the_library_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for an import that fails begins one of its own."""
    begun, overlaps, has_failed = Event(), Event(), Event()

    def import_library() -> str:
        if begun.is_set():
            overlaps.set()
            return "library" if has_failed.is_set() else "incomplete library"
        begun.set()
        overlaps.wait(0.2)
        has_failed.set()
        raise ImportError("a part of it is missing")

    monkeypatch.setattr(provider, "_import_litellm", import_library)
    with ThreadPoolExecutor(2) as threads:
        failing = threads.submit(provider._load_litellm)
        assert begun.wait(10)
        waiting = threads.submit(provider._load_litellm)
        assert isinstance(failing.exception(), ImportError)
        assert waiting.result() == "library"


def test_an_import_after_one_that_failed_is_whole(tmp_path: Path) -> None:
    """The modules of the library that were complete are imported again, too."""
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").write_text(FAILING_ONCE)
    (package / "part.py").write_text("import litellm\n")
    path = os.pathsep.join([str(tmp_path), str(Path(provider.__file__).parents[3])])
    subprocess.run(
        [sys.executable, "-c", TWO_LOADS],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        check=True,
    )

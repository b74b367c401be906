"""Names of languages, and the files that are written in them."""

from __future__ import annotations

import re

import pytest

from content.detection import _CODE_NAMES, _CODE_WITHOUT_GRAMMAR, language_of
from content.languages import (
    _NAMES,
    BY_INTERPRETER,
    BY_MEDIA_TYPE,
    BY_NAME,
    BY_SUFFIX,
    Files,
    canonical,
    canonical_or_same,
)

RENDERED = {".html", ".htm"}


def test_every_file_of_code_belongs_to_a_language() -> None:
    """A file of code can be found by its language, also without a grammar."""
    names = re.compile(Files.of(_NAMES.values()).names)
    files = {*_CODE_NAMES, *BY_NAME, *(f"a{suffix}" for suffix in _CODE_WITHOUT_GRAMMAR)}
    assert {file for file in files if not names.search(file)} == {f"a{one}" for one in RENDERED}


@pytest.mark.parametrize("sign", [*BY_SUFFIX, *BY_NAME])
def test_a_file_is_in_the_language_that_its_grammar_has(sign: str) -> None:
    uri = f"docs/x{sign}" if sign.startswith(".") else f"docs/{sign}"
    language = (BY_SUFFIX | BY_NAME)[sign]
    assert re.search(Files.of([language]).names, uri)
    assert not re.search(
        Files.of({*_NAMES.values()} - {language, *SHARING.get(sign, ())}).names, uri
    )


SHARING = {".h": ("c", "objc"), ".tsx": ("typescript",)}


@pytest.mark.parametrize("name", BY_INTERPRETER)
def test_a_script_is_in_the_language_of_its_interpreter(name: str) -> None:
    script = f"#!/usr/bin/env {name}3.11\n"
    language = language_of("run", None, script)
    assert language == BY_INTERPRETER[name]
    assert re.search(Files.of([language]).first_line, script)
    others = {*BY_INTERPRETER.values()} - {language}
    assert not re.search(Files.of(others).first_line, script)


def test_media_types_are_split_in_two() -> None:
    files = Files.of(["ruby"])
    assert files.media_types == ("text/x-ruby",)
    assert {*files.media_types, *files.other_media_types} == set(BY_MEDIA_TYPE)


def test_no_file_is_in_a_language_of_examples_alone() -> None:
    """An unknown language selects code examples that name it, and no file."""
    files = Files.of([canonical_or_same("Mermaid")])
    assert files.spellings == ("mermaid",)
    assert not re.search(files.names, "mermaid.py")
    assert not re.search(files.first_line, "#!/bin/sh")


def test_aliases_lead_to_names() -> None:
    assert canonical("C++") == "cpp"
    assert "c++" in Files.of(["cpp"]).spellings
    assert set(_NAMES.values()) == {canonical(name) for name in _NAMES}
    with pytest.raises(ValueError, match="similar: rust"):
        canonical("rsut")

"""Preparation of a question's text for the search."""

from __future__ import annotations

import re

from store.search.keyword.tokenizer import terms

__all__ = ["searchable"]

FEWEST_TERMS = 3
"""Addresses are dropped only if this many terms are left; otherwise the question is about them."""

_ADDRESS = re.compile(r"https?://\S+")
_FILE_NAME = re.compile(r"/([\w-]+\.[A-Za-z]\w*)[^\w/]*$")


def searchable(text: str) -> str:
    """Replace each web address in a question by the file name that it ends in, or by nothing.

    Commit messages and issues end in links to trackers and chats, whose words and numbers
    (``https``, ``issues``, ``5260``) mislead both retrievers. A question that consists mostly of
    addresses is not changed.
    """
    shortened = _ADDRESS.sub(_file_name, text)
    return shortened if len(terms(shortened)) >= FEWEST_TERMS else text


def _file_name(address: re.Match[str]) -> str:
    path = address[0].partition("://")[2]
    match = _FILE_NAME.search(path)
    return match[1] if match else ""

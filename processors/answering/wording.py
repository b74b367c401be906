"""What of a question is searched for."""

from __future__ import annotations

import re

from store.keyword.tokens import terms

__all__ = ["searchable"]

FEWEST_TERMS = 3
"""Terms that must be left for addresses to be dropped: else they are what is asked about."""

_ADDRESS = re.compile(r"https?://\S+")
_FILE_NAME = re.compile(r"/([\w-]+\.[A-Za-z]\w*)[^\w/]*$")


def searchable(text: str) -> str:
    """The question without web addresses, each replaced by the file name that it ends in, if any.

    Commit messages and issues end in links to trackers and chats, whose words and numbers
    (``https``, ``issues``, ``5260``) lead both legs astray. A question of little but addresses
    stays as it is.
    """
    rest = _ADDRESS.sub(_file_name, text)
    return rest if len(terms(rest)) >= FEWEST_TERMS else text


def _file_name(address: re.Match[str]) -> str:
    path = address[0].partition("://")[2]
    found = _FILE_NAME.search(path)
    return found[1] if found else ""

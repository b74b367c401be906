"""Preparation of a question's text for the search: operators, and web addresses."""

from __future__ import annotations

import re
from collections import defaultdict

from pydantic import ValidationError

from events.models import Filters, Query, first_problem
from runtime.errors import UsageError
from store.search.keyword.tokenizer import terms

__all__ = ["searchable", "with_operators"]

FEWEST_TERMS = 3
"""Addresses are dropped only if this many terms are left; otherwise the question is about them."""

_FIELDS = {"path": "path_globs", "lang": "languages", "symbol": "symbols", "kind": "kinds"}
"""Field of the filters that each operator adds to."""

_OPERATORS = {field: name for name, field in _FIELDS.items()}

_OPERATOR = re.compile(
    r"""(?<!\S)(?:
        (?P<no>-)?(?P<name>path|lang|symbol|kind):(?:"(?P<quoted>[^"]+)"|(?P<value>[^\s"]\S*))
        | (?P<not>-)?"(?P<phrase>[^"]*\w[^"]*)"
        | -(?P<without>[^\W\d_]\w+)
    )(?!\S)""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r'(?<!\S)\\(?=["-]|(?:path|lang|symbol|kind):)')

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


def with_operators(query: Query) -> Query:
    """Move the operators in a question's text to its filters.

    They are ``path:GLOB``, ``-path:GLOB``, ``lang:NAME``, ``symbol:NAME``, ``kind:NAME``,
    ``"a phrase"``, ``-"a phrase"`` and ``-word``. A backslash before one makes it a part of the
    text, and so is anything else. A question of operators alone becomes a list of documents in
    path order, which is an exact search for any line, or of the definitions of symbols, which is an
    exact search without a text.

    Raises:
        UsageError: a value of an operator is wrong.
    """
    values: defaultdict[str, list[str]] = defaultdict(list)

    def move(match: re.Match[str]) -> str:
        name = match["name"]
        if name and match["no"] and name != "path":
            return match[0]
        if name:
            value = match["quoted"] or match["value"]
            values[_FIELDS[name]].append(f"!{value}" if match["no"] else value)
        elif match["phrase"]:
            values["without" if match["not"] else "phrases"].append(match["phrase"])
        else:
            values["without"].append(match["without"])
        return ""

    text = _ESCAPED.sub("", _OPERATOR.sub(move, query.text)).strip()
    if not values:
        return query.model_copy(update={"text": text})
    fields = query.filters.model_dump(mode="json")
    for name, added in values.items():
        fields[name] = [*fields.get(name, ()), *added]
    try:
        filters = Filters.model_validate(fields)
    except ValidationError as error:
        field, _, problem = first_problem(error).partition(": ")
        name = _OPERATORS.get(field.partition(".")[0], field)
        raise UsageError(
            f"operator {name} in the question: {problem}",
            "correct it, or write a backslash before it",
        ) from None
    if text:
        return query.model_copy(update={"text": text, "filters": filters})
    if filters.phrases:
        return query.model_copy(update={"text": " ".join(filters.phrases), "filters": filters})
    listing = {"text": r"\S", "regex": True, "per_file": True}
    if filters.symbols:
        listing = {"text": ""}
    return query.model_copy(update={**listing, "mode": "exact", "filters": filters})

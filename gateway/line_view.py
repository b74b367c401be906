"""Lines of an exact search, printed as grep does."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from events.models import QueryAnswer, SearchResult
from gateway.output import on_one_line, print_json, printable

__all__ = ["LinePrinter"]

_PURPLE, _GREEN, _RED, _PLAIN = "\033[35m", "\033[32m", "\033[1;31m", "\033[0m"


class LinePrinter:
    """Prints results as they come, as grep does."""

    def __init__(self, *, json: bool, uris: bool, counts: bool, separate: bool) -> None:
        self._json = json
        self._uris = uris
        self._counts = counts
        self._separate = separate
        self._coloured = sys.stdout.isatty()
        self.results = 0

    def answer(self, answer: QueryAnswer) -> None:
        """Print an answer."""
        if self._json:
            self.results += len(answer.results)
            print_json(answer.model_dump(mode="json", exclude_none=True))
            return
        for result in answer.results:
            for line in self._lines(result):
                print(line)  # noqa: T201
            self.results += 1

    def _lines(self, result: SearchResult) -> Iterator[str]:
        uri = self._painted(_PURPLE, on_one_line(result.citation.uri))
        if self._uris:
            yield uri
        elif self._counts:
            yield f"{uri}:{result.matching_lines}"
        else:
            if self._separate and self.results:
                yield "--"
            start = 0
            for number, text in enumerate(result.content.split("\n"), result.citation.start_line):
                mark, shown = self._marked(text, start, result)
                number_text = self._painted(_GREEN, str(number))
                yield f"{uri}{mark}{number_text}{mark}{shown}"
                start += len(text) + 1

    def _marked(self, text: str, start: int, result: SearchResult) -> tuple[str, str]:
        """Return ``:`` and the line with its matches painted, or ``-`` for a line around them."""
        spans = [
            (span.start - start, span.end - start)
            for match in result.matches or ()
            for span in match.spans
            if start <= span.start <= start + len(text)
        ]
        if not spans:
            return "-" if self._separate else ":", printable(text)
        parts, end = [], 0
        for first, last in spans:
            parts += [printable(text[end:first]), self._painted(_RED, printable(text[first:last]))]
            end = last
        return ":", "".join([*parts, printable(text[end:])])

    def _painted(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._coloured else text

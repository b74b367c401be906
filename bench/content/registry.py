"""Registry of the measurements of content, and the goals of their figures.

A measurement is a module of this package with a function ``figures``, which receives the folder of
a corpus and returns figures by name. A figure without a goal is reported, but is not a row of the
table. A goal whose figure is missing is a row that was left out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.figures import Row

__all__ = ["MEASUREMENTS", "Goal", "rows"]

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "≥": operator.ge,
    "≤": operator.le,
    "=": operator.eq,
}


@dataclass(frozen=True, slots=True)
class Goal:
    """Limit of a figure. ``needs`` names what a corpus must have, so that there is a figure."""

    what: str
    figure: str
    sign: str
    limit: float
    needs: str

    def row(self, figures: Mapping[str, float | str], reason: str = "") -> Row:
        """Compare the figure of a measurement with the goal.

        A ``reason`` says why the measurement failed, so the goal is not met.
        """
        goal = f"{self.sign} {self.limit:,.5g}"
        figure = figures.get(self.figure)
        if figure is None:
            met, reason = (False, reason) if reason else (None, f"the corpus has no {self.needs}")
            return Row(self.what, None, goal, met, reason)
        return Row(self.what, figure, goal, _OPERATORS[self.sign](float(figure), self.limit))


_PDF = ".pdf file"
_HTML = ".html file of this generator"
_API = "description of an API in openapi/"

MEASUREMENTS: Mapping[str, tuple[Goal, ...]] = {
    "outcomes": (
        Goal("files: opened or refused", "share_opened_or_refused", "=", 1, "file"),
        Goal("files: crashes", "crashed", "=", 0, "file"),
        Goal("files: hangs", "hung", "=", 0, "file"),
        Goal("files: outcome as expected", "share_as_expected", "=", 1, "expected.json"),
        Goal("files: refusals with a remedy", "share_with_remedy", "=", 1, "file that is refused"),
        Goal("files: facts as expected", "share_of_facts", "=", 1, "expected.json with facts"),
        Goal("e-mail: opened", "share_of_email_opened", "=", 1, ".eml or .mbox file"),
        Goal("books: opened", "share_of_book_opened", "=", 1, ".epub file"),
    ),
    "pdf": (
        Goal("PDF: pages per second of processor time", "pages_per_cpu_s", "≥", 60, _PDF),
        Goal("PDF: peak of memory, MB", "peak_mb", "≤", 200, _PDF),
        Goal("PDF text: words F1", "text_word_f1", "≥", 0.95, ".txt beside a .pdf"),
        Goal("PDF text: runs of 4 words F1", "text_4gram_f1", "≥", 0.82, ".txt beside a .pdf"),
        Goal("PDF tables: neighbours F1", "table_f1", "≥", 0.8, ".csv beside a .pdf with text"),
        Goal("PDF tables: rows as expected", "share_of_table_rows", "=", 1, "expected rows"),
        Goal("PDF tables: in prose", "tables_in_prose", "=", 0, "PDF with 0 expected tables"),
        Goal("PDF citation: words under boxes", "words_under_boxes", "≥", 0.98, _PDF),
    ),
    "html": (
        Goal("HTML: code lines, Sphinx", "python code lines", "≥", 0.89, _HTML),
        Goal("HTML: code lines, AsciiDoc", "git code lines", "≥", 0.99, _HTML),
        Goal("HTML: code lines, DocBook", "pg code lines", "≥", 0.69, _HTML),
        Goal("HTML: headings, Sphinx", "python headings", "=", 1, _HTML),
        Goal("HTML: headings, AsciiDoc", "git headings", "=", 1, _HTML),
        Goal("HTML: headings, DocBook", "pg headings", "=", 1, _HTML),
        Goal("HTML: articles F1", "article word F1", "≥", 0.9, ".txt beside a .html"),
        Goal("HTML: ms a page", "ms a page", "≤", 15, ".html file"),
    ),
    "openapi": (
        Goal("API: operations by symbol", "operations findable by symbol", "=", 1, _API),
        Goal("API: gain of nDCG@10", "gain of nDCG@10", "≥", 0.06, _API),
        Goal("API: share of the tokens", "share of tokens", "≤", 0.5, _API),
        Goal("API: 778 KiB of references, s", "778 KiB of cross-references s", "≤", 5, _API),
        Goal("API: 778 KiB of references, MB", "778 KiB of cross-references MB", "≤", 300, _API),
    ),
    "notebook": (
        Goal("notebooks: share of the bytes", "rendered share of them", "≤", 0.2, ".ipynb file"),
        Goal("notebooks: code cells verbatim", "code cells verbatim", "=", 1, ".ipynb file"),
    ),
    "word": (
        Goal("Word: words", "word words", "≥", 0.97, ".docx file"),
        Goal("Word: cells", "word cells", "≥", 0.95, ".docx file with tables"),
        Goal("Word: headings", "word headings", "=", 1, ".docx file with headings"),
    ),
    "slides": (
        Goal("slides: words", "words", "≥", 0.97, ".pptx file"),
        Goal("slides: titles", "share of titles", "=", 1, ".pptx file with expected titles"),
    ),
    "sheet": (
        Goal("sheets: cells", "cells in their row", "≥", 0.95, ".xlsx file with cells"),
        Goal("sheets: chunks that an edited row changes", "chunks of an edited row", "≤", 1, "row"),
    ),
    "text": (
        Goal("text: answers in 400 tokens", "recall_400", "≥", 0.72, "text/questions.csv"),
        Goal("text: answers in 800 tokens", "recall_800", "≥", 0.85, "text/questions.csv"),
        Goal("text: halves of fences", "odd_fences", "=", 0, "file"),
        Goal("text: rows of tables in two chunks", "split_rows", "=", 0, "file"),
        Goal("code: fragments in 1,000 chunks", "code_fragments_in_1000", "≤", 1, "file"),
    ),
    "conversation": (
        Goal("chats: chunks over threads", "chunks_over_threads", "=", 0, "conversation"),
        Goal("chats: without speakers", "chunks_without_speaker", "=", 0, "conversation"),
        Goal("chats: without times", "chunks_without_time", "=", 0, "conversation"),
    ),
    "semantic": (
        Goal(
            "semantic: tokens embedded, over those of auto",
            "semantic tokens over auto's",
            "≤",
            2.1,
            "text/questions.csv",
        ),
        Goal("semantic: chunks after an edit", "chunks embedded after an edit", "≤", 4, "file"),
    ),
    "context": (
        Goal("contexts: requests per window", "requests per window", "=", 1, ".html file"),
        Goal("contexts: chunks per edit", "chunks asked for per edit", "≤", 2, ".html file"),
        Goal("contexts: without a budget", "requests without a budget", "=", 0, ".html file"),
    ),
    "hostile": (
        Goal("hostile: indexed or refused", "share_indexed_or_refused", "=", 1, "file"),
        Goal("hostile: crashes", "crashed", "=", 0, "file"),
        Goal("hostile: hangs", "hung", "=", 0, "file"),
    ),
    "examples": (
        Goal("code examples: gain of nDCG@10", "gain of nDCG@10", "≥", 0.001, "code in prose"),
    ),
}
"""Goals of each measurement, by the name of its module."""


def rows(name: str, figures: Mapping[str, float | str], reason: str = "") -> list[Row]:
    """Compare the figures of a measurement with its goals, see ``Goal.row``."""
    return [goal.row(figures, reason) for goal in MEASUREMENTS[name]]

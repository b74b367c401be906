"""HTML of crawls, files, books and messages: the main part of a page as Markdown."""

from content.extractors.html.page import extract

__all__ = ["extract"]

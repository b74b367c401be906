"""Extractor of sheets: workbooks, and files of separated values.

Runs of rows without an empty row between them are blocks. A block is a section, and its label names
the sheet and the columns, so that every chunk of its rows is embedded with them.
"""

from content.extractors.sheets.extractor import extract

__all__ = ["extract"]

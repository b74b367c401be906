"""Figures of the extractors over a corpus of documents."""

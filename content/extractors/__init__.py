"""Extractors: one module per format, imported when its kind is first met."""

"""Content of every kind: its detection, and its extraction into lines of Markdown.

Extraction runs on untrusted bytes in the parser processes, and does no input or output. An
extractor knows one format and nothing of chunks; the chunkers know lines and nothing of formats.
"""

"""Chunkers, one file per kind of content.

A chunker builds ``Lines`` from the text. It finds the ``Unit``s of its syntax and calls ``pack``,
or it finds ``Heading``s and calls ``chunk_sections``. ``text.py`` and ``rst.py`` are the shortest
models of the two ways. ``prose``, ``syntax`` and ``grammars`` are parts that chunkers share.
"""

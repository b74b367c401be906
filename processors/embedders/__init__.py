"""Embedding models: the only package that calls them.

A parser imports its tokenizer, and nothing else of it.
"""

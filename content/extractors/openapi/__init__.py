"""Extractor of OpenAPI and Swagger descriptions: one text per operation and per schema."""

from content.extractors.openapi.extractor import extract

__all__ = ["extract"]

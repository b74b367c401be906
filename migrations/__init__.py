"""Numbered changes of the database schema, applied by ``headrace migrate``."""

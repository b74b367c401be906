"""One file per command; each exposes ``command``."""

"""Commands of ``headrace``: one module each, which exports ``command``."""

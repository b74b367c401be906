"""Expiry: rows leave Postgres once no change, question or replay can need them."""

"""Pages for people: ask, read documents, follow syncs, and operate."""

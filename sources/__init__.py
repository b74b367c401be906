"""Sources of documents: directories and git repositories."""

from sources.comparison import Basis
from sources.messages import document_changed
from sources.registry import open_source
from sources.state import State
from sources.sync import Sync
from sources.types import Change, Held, Listing, Report, Skip, Source, Why

__all__ = [
    "Basis",
    "Change",
    "Held",
    "Listing",
    "Report",
    "Skip",
    "Source",
    "State",
    "Sync",
    "Why",
    "document_changed",
    "open_source",
]

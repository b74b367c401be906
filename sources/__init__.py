"""Where documents come from."""

from sources.messages import document_changed
from sources.registry import open_source
from sources.state import State
from sources.syncing import Sync
from sources.types import Change, Report, Skip, Source

__all__ = [
    "Change",
    "Report",
    "Skip",
    "Source",
    "State",
    "Sync",
    "document_changed",
    "open_source",
]

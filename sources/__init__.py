"""Sources of documents: directories and git repositories."""

from sources.comparison import Basis
from sources.messages import document_changed
from sources.registry import open_source
from sources.state import State
from sources.sync import Sync
from sources.types import (
    Change,
    IndexedDocument,
    Listing,
    Reason,
    RemoteSource,
    Report,
    SizeLimits,
    Skip,
    Source,
    SyncOptions,
    WatchableSource,
)

__all__ = [
    "Basis",
    "Change",
    "IndexedDocument",
    "Listing",
    "Reason",
    "RemoteSource",
    "Report",
    "SizeLimits",
    "Skip",
    "Source",
    "State",
    "Sync",
    "SyncOptions",
    "WatchableSource",
    "document_changed",
    "open_source",
]

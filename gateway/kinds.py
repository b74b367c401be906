"""Kinds of content that commands accept."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ContentKind"]


class ContentKind(StrEnum):
    """Kinds that have a chunker; events define more, for future use."""

    CODE = "code"
    MARKDOWN = "markdown"
    RST = "rst"
    TEXT = "text"
    OPENAPI = "openapi"
    CONVERSATION = "conversation"

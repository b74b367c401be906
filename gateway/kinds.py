"""Kinds of content that can be asked for."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ContentKind"]


class ContentKind(StrEnum):
    """Those that have a chunker; events name more, for what is to come."""

    CODE = "code"
    MARKDOWN = "markdown"
    RST = "rst"
    TEXT = "text"
    OPENAPI = "openapi"
    CONVERSATION = "conversation"

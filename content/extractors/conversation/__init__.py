"""Extractor of conversations: exports of chats, message lists and subtitles."""

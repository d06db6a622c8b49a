"""A circuit breaker: a server that does not answer costs microseconds, not deadlines."""

from __future__ import annotations

from enum import Enum
from threading import Lock
from typing import Final

#: Time without an answer after which one failure opens the breaker, if another server is in use.
_SILENT_NS: Final = 250_000_000


class Permit(Enum):
    """Whether a call may be made."""

    #: The breaker is open.
    NONE = 0
    #: A call as usual.
    CALL = 1
    #: The one call that tests whether the server answers again.
    PROBE = 2


class Breaker:
    """Opens after so many failures in a row; lets one call through each time it has been open for long enough.

    Calls that were in flight together fail together, for instance when the process was stopped: they count as one.
    While another server is in use, one failure is enough if no call was answered for a quarter of a second: few calls
    would otherwise need long to find a server that hangs.
    """

    def __init__(self, failures_max: int, open_ns: int) -> None:
        self._failures_max = failures_max
        self._open_ns = open_ns
        self._failures = 0
        #: When the last failure was counted. A call that was sent before counts as part of it.
        self._failed_ns = 0
        #: When the last answered call was sent; None before the first.
        self._answered_ns: int | None = None
        #: When a probe may be made; None while closed.
        self._probe_at_ns: int | None = None
        self._is_probing = False
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether calls fail at once."""
        return self._probe_at_ns is not None

    def enter(self, now_ns: int) -> Permit:
        """Return whether a call may be made now."""
        if self._probe_at_ns is None:
            return Permit.CALL
        with self._lock:
            if self._probe_at_ns is None:
                return Permit.CALL
            if self._is_probing or now_ns < self._probe_at_ns:
                return Permit.NONE
            self._is_probing = True
            return Permit.PROBE

    def succeeded(self, permit: Permit, sent_ns: int) -> None:
        """Record that a call was answered."""
        self._answered_ns = sent_ns
        if permit is Permit.CALL and not self._failures:
            return
        with self._lock:
            if permit is Permit.PROBE:
                self._is_probing = False
                self._probe_at_ns = None
            if self._probe_at_ns is None:
                self._failures = 0

    def failed(self, permit: Permit, sent_ns: int, now_ns: int, has_other: bool) -> None:
        """Record that a call was not answered, and whether another server is in use."""
        if not self._failures_max:
            return
        with self._lock:
            if permit is Permit.PROBE:
                self._is_probing = False
                self._probe_at_ns = now_ns + self._open_ns
            elif self._probe_at_ns is None and (not self._failures or sent_ns >= self._failed_ns):
                self._failures += 1
                self._failed_ns = now_ns
                is_silent = self._answered_ns is None or now_ns - self._answered_ns >= _SILENT_NS
                if self._failures >= self._failures_max or (has_other and is_silent):
                    self._probe_at_ns = now_ns + self._open_ns

    def abandoned(self, permit: Permit) -> None:
        """Record that the caller cancelled the call: neither a success nor a failure."""
        if permit is Permit.PROBE:
            with self._lock:
                self._is_probing = False

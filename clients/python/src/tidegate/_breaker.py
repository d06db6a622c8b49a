"""A circuit breaker: a server that does not answer costs microseconds, not deadlines."""

from __future__ import annotations

from enum import Enum
from threading import Lock


class Permit(Enum):
    """Whether a call may be made."""

    #: The breaker is open.
    NONE = 0
    #: A call as usual.
    CALL = 1
    #: The one call that finds out whether the server answers again.
    PROBE = 2


class Breaker:
    """Opens after so many failures in a row; lets one call through each time it has been open for long enough.

    Calls that were in flight together fail together, for instance when the process was stopped: they count as one.
    """

    def __init__(self, failures_max: int, open_ns: int) -> None:
        self._failures_max = failures_max
        self._open_ns = open_ns
        self._failures = 0
        #: When the last failure was counted. A call that was sent before belongs to it.
        self._failed_ns = 0
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

    def succeeded(self, permit: Permit) -> None:
        """Record that a call was answered."""
        if permit is Permit.CALL and not self._failures:
            return
        with self._lock:
            if permit is Permit.PROBE:
                self._is_probing = False
                self._probe_at_ns = None
            if self._probe_at_ns is None:
                self._failures = 0

    def failed(self, permit: Permit, sent_ns: int, now_ns: int) -> None:
        """Record that a call was not answered."""
        if not self._failures_max:
            return
        with self._lock:
            if permit is Permit.PROBE:
                self._is_probing = False
                self._probe_at_ns = now_ns + self._open_ns
            elif self._probe_at_ns is None and (not self._failures or sent_ns >= self._failed_ns):
                self._failures += 1
                self._failed_ns = now_ns
                if self._failures >= self._failures_max:
                    self._probe_at_ns = now_ns + self._open_ns

    def abandoned(self, permit: Permit) -> None:
        """Record that a call was given up by its caller: neither a success nor a failure."""
        if permit is Permit.PROBE:
            with self._lock:
                self._is_probing = False

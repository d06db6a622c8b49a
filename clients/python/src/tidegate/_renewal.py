"""Whether a call without an answer leads to new connections to a name. Pure: time is an argument."""

from __future__ import annotations

from threading import Lock
from typing import Final

#: Seconds within which a new connection has to be established.
OPENED_MAX: Final = 5.0

#: Seconds after which a replaced connection is closed, if it has calls in flight for so long.
IN_FLIGHT_MAX: Final = 60.0

_LEAST_NS: Final = 1_000_000_000
_MOST_NS: Final = 60 * _LEAST_NS


class Renewals:
    """Permits one renewal at a time, and from one to the next a second, which doubles up to a minute.

    A server that hangs costs one renewal. Those that answer late also on new connections are not burdened with more.
    """

    def __init__(self) -> None:
        self._is_running = False
        self._next_ns = 0
        self._wait_ns = _LEAST_NS
        self._lock = Lock()

    def begin(self, now_ns: int) -> bool:
        """Return whether a renewal begins."""
        with self._lock:
            if self._is_running or now_ns < self._next_ns:
                return False
            self._is_running = True
            return True

    def ended(self, is_replaced: bool, now_ns: int) -> None:
        """Record the end of a renewal, and whether the connection was replaced."""
        with self._lock:
            self._is_running = False
            if not is_replaced:
                self._next_ns = now_ns + _LEAST_NS
                return
            if now_ns - self._next_ns >= _MOST_NS:
                self._wait_ns = _LEAST_NS
            self._next_ns = now_ns + self._wait_ns
            self._wait_ns = min(2 * self._wait_ns, _MOST_NS)

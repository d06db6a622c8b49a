"""Limits: a number of requests per window."""

from __future__ import annotations

from typing import Final

_NANOS: Final = 1_000_000_000

#: Nanoseconds of each unit, as the server counts them.
_UNITS_NS: Final = {
    "second": _NANOS,
    "minute": 60 * _NANOS,
    "hour": 3600 * _NANOS,
    "day": 86_400 * _NANOS,
    "week": 604_800 * _NANOS,
    "month": 2_592_000 * _NANOS,
    "year": 31_536_000 * _NANOS,
}

#: Units in which a window is written, the largest first.
_SCALES: Final = (
    (86_400 * _NANOS, "d"),
    (3600 * _NANOS, "h"),
    (60 * _NANOS, "m"),
    (_NANOS, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
)


class Limit:
    """A limit: so many requests per window."""

    __slots__ = ("name", "requests", "unit", "window_ns")

    def __init__(self, requests: int, unit: str, name: str = "", window_ns: int | None = None) -> None:
        #: Hits that fit into one window.
        self.requests = requests
        #: `second`, `minute`, `hour`, `day`, `week`, `month`, `year`; empty if the window is not one unit.
        self.unit = unit
        #: The limit's name in the rules; empty if it has none.
        self.name = name
        #: Nanoseconds of the window; None if the server does not send it. A month has 30 days, a year 365.
        self.window_ns = _UNITS_NS.get(unit, window_ns)

    @property
    def window(self) -> float | None:
        """Seconds of the window; None if the server does not send it."""
        return None if self.window_ns is None else self.window_ns / _NANOS

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Limit):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[int, str, str, int | None]:
        return (self.requests, self.unit, self.name, self.window_ns)

    def __repr__(self) -> str:
        window = "" if self.unit else f", window_ns={self.window_ns}"
        return f"Limit({self.requests}, {self.unit!r}, name={self.name!r}{window})"


def policy(limit: Limit) -> str:
    """Return the limit as an item of `RateLimit-Policy`."""
    # The draft's windows are whole seconds.
    window_ns = limit.window_ns
    window = "" if window_ns is None or window_ns % _NANOS else f";w={window_ns // _NANOS}"
    return f"{quoted(limit)};q={limit.requests}{window}"


def quoted(limit: Limit) -> str:
    """Return the limit's name as a structured String (RFC 9651)."""
    text = "".join(
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 0x20 <= byte < 0x7F else f"%{byte:02X}"
        for byte in (limit.name or _numbers(limit)).encode()
    )
    return f'"{text}"'


def _numbers(limit: Limit) -> str:
    """Return the name of an unnamed limit: `5-per-minute`, `5-per-10s`, or `5` if its window is not known."""
    if limit.unit:
        return f"{limit.requests}-per-{limit.unit}"
    window_ns = limit.window_ns
    if window_ns is None:
        return f"{limit.requests}"
    length, suffix = next(scale for scale in _SCALES if window_ns % scale[0] == 0)
    return f"{limit.requests}-per-{window_ns // length}{suffix}"

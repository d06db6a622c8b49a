"""The servers of a client: which of them gets a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegate._breaker import Breaker, Permit


class Server:
    """One address: its breaker, and the known state of its connection."""

    __slots__ = ("breaker", "is_connected", "is_first", "last_failure", "target")

    def __init__(self, target: str, failures_max: int, open_ns: int) -> None:
        #: The gRPC target.
        self.target = target
        self.breaker = Breaker(failures_max, open_ns)
        #: Whether no call is over yet: the first call opens the connection.
        self.is_first = True
        #: Whether the connection is established.
        self.is_connected: Callable[[], bool] = lambda: True
        #: Code and message of the last failure.
        self.last_failure = ""


class Choice(NamedTuple):
    """The server of a call, and a server to probe beside it."""

    server: Server
    permit: Permit
    probed: Server | None


class Servers:
    """The servers take turns. One without an answer or a connection is left out while another is in use."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.all = tuple(servers)
        self._turns = itertools.count()

    @property
    def is_open(self) -> bool:
        """Whether the breaker of each server is open."""
        return all(server.breaker.is_open for server in self.all)

    def choose(self, now_ns: int) -> Choice | None:
        """Return the server of a call; None if no breaker permits a call."""
        servers = self.all
        if len(servers) == 1:
            permit = servers[0].breaker.enter(now_ns)
            return None if permit is Permit.NONE else Choice(servers[0], permit, None)
        turn = next(self._turns) % len(servers)
        servers = servers[turn:] + servers[:turn]
        for server in servers:
            if not server.breaker.is_open and server.is_connected():
                return Choice(server, Permit.CALL, self._due(now_ns))
        for server in servers:
            permit = server.breaker.enter(now_ns)
            if permit is not Permit.NONE:
                return Choice(server, permit, None)
        return None

    def has_other(self, than: Server) -> bool:
        """Return whether another server is in use."""
        others = (server for server in self.all if server is not than)
        return any(not server.breaker.is_open and server.is_connected() for server in others)

    def _due(self, now_ns: int) -> Server | None:
        """Return a server whose breaker is open and permits a probe."""
        for server in self.all:
            if server.breaker.is_open and server.breaker.enter(now_ns) is Permit.PROBE:
                return server
        return None

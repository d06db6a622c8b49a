"""The client of asyncio; see `Tidegate`."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import grpc
import grpc.aio

from tidegate._breaker import Permit
from tidegate._channel import may_have_several_addresses, options, targets
from tidegate._decision import Decision
from tidegate._engine import (
    METHOD,
    Call,
    Engine,
    MetadataSource,
    Observer,
    OnFailure,
    RateLimited,
    Waiting,
    parsed,
)
from tidegate._proto import rls_pb2 as pb
from tidegate._renewal import IN_FLIGHT_MAX, OPENED_MAX, Renewals
from tidegate._request import DescriptorLike
from tidegate._servers import Server
from tidegate._slot import Acquiring, AioSlot
from tidegate.local import LocalLimit

_P = ParamSpec("_P")
_R = TypeVar("_R")

_READY = grpc.ChannelConnectivity.READY


class _Connection(NamedTuple):
    channel: grpc.aio.Channel
    stub: Any
    renewals: Renewals


class Tidegate:
    """A client of a Tidegate server for asyncio. It may be used by several event loops, one after another or at once.

    `address` is `host:port`, `unix:/path/of/socket`, any other gRPC target, or several of these, which take turns.
    Each has a connection, a breaker and a verified name of its own. Connections are opened by the first call.
    """

    def __init__(
        self,
        address: str | Sequence[str] = "127.0.0.1:8081",
        *,
        domain: str = "",
        timeout: float = 0.05,
        connect_timeout: float = 1.0,
        on_failure: OnFailure = "open",
        fallback: Sequence[LocalLimit] = (),
        local_denials: int = 10_000,
        local_denials_for: float = 1.0,
        breaker_failures: int = 5,
        breaker_open: float = 1.0,
        credentials: grpc.ChannelCredentials | None = None,
        observers: Sequence[Observer] = (),
        metadata: Sequence[MetadataSource] = (),
        channel_options: Sequence[tuple[str, str | int]] = (),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create a client.

        `domain`: the domain of calls that name none.
        `timeout`: seconds until an answer counts as missing.
        `connect_timeout`: the same for the first call, which opens the connection.
        `on_failure`: `"open"` allows requests that get no answer, `"closed"` denies them.
        `fallback`: limits that count such requests in this process; `on_failure` is for the others.
        `local_denials`: denials that are kept until their reset; 0 switches this off.
        `local_denials_for`: most seconds for which a denial is kept.
        `breaker_failures`: failures in a row after which calls to a server fail at once; 0 switches this off.
        `breaker_open`: seconds until another call is tried.
        `credentials`: of `grpc.ssl_channel_credentials`, for TLS and mTLS.
        `observers`: called with each decision and the seconds it took.
        `metadata`: called for the metadata of each call, such as the trace context.
        `channel_options`: gRPC channel arguments beside those of this library.
        `clock`: monotonic nanoseconds; of use in tests.
        """
        self._engine = Engine(
            targets=targets(address),
            domain=domain,
            timeout=timeout,
            connect_timeout=connect_timeout,
            on_failure=on_failure,
            fallback=fallback,
            local_denials=local_denials,
            local_denials_for=local_denials_for,
            breaker_failures=breaker_failures,
            breaker_open=breaker_open,
            observers=observers,
            metadata=metadata,
            clock=clock,
        )
        self._credentials = credentials
        self._options = options(connect_timeout, channel_options)
        self._clock = clock
        #: Connections belong to the event loop that opened them.
        self._connections: dict[asyncio.AbstractEventLoop, dict[Server, _Connection]] = {}
        #: Event loops run in threads of their own.
        self._lock = threading.Lock()
        #: Probes and renewals.
        self._tasks: set[asyncio.Task[None]] = set()

    async def limit(
        self,
        *descriptors: DescriptorLike,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
        timeout: float | None = None,
        local_denials: bool = True,
        **entries: str,
    ) -> Decision:
        """Take `cost` hits of every limit that the request reaches, or none at all.

        Keyword arguments beside the options are the entries of one descriptor: `limit(api_key="k")`. Each positional
        argument is a further descriptor, a mapping or a `Descriptor`.

        Raises `RequestError` if the server refuses the request itself.
        """
        begun = self._engine.begin(
            descriptors,
            entries,
            cost,
            domain=domain,
            on_failure=on_failure,
            timeout=timeout,
            local_denials=local_denials,
        )
        return begun if isinstance(begun, Decision) else await self._call(begun)

    def acquire(
        self,
        *descriptors: DescriptorLike,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
        timeout: float | None = None,
        **entries: str,
    ) -> Acquiring:
        """Take `cost` hits as `limit` does, and hold slots of requests in flight, and estimates of costs.

        `async with client.acquire(user="ann") as slot:` releases them at the end, and `await slot.commit(1234)` in it
        names the actual cost. No denial is kept.
        """

        async def acquired() -> AioSlot:
            decision = await self.limit(
                *descriptors,
                cost=cost,
                domain=domain,
                on_failure=on_failure,
                timeout=timeout,
                local_denials=False,
                **entries,
            )
            return AioSlot(
                decision, lambda *sent: self.limit(*sent, domain=domain, local_denials=False), descriptors, entries
            )

        return Acquiring(acquired)

    async def peek(
        self,
        *descriptors: DescriptorLike,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
        timeout: float | None = None,
        **entries: str,
    ) -> Decision:
        """Return whether one more hit would be admitted, without taking it."""
        begun = self._engine.begin(
            descriptors,
            entries,
            0,
            domain=domain,
            on_failure=on_failure,
            timeout=timeout,
            local_denials=False,
        )
        return begun if isinstance(begun, Decision) else await self._call(begun)

    async def give_back(
        self,
        *descriptors: DescriptorLike,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
        timeout: float | None = None,
        **entries: str,
    ) -> Decision:
        """Give back `cost` hits that were taken.

        From then on this client keeps no denials for descriptors with the same keys.
        """
        begun = self._engine.begin(
            descriptors,
            entries,
            cost,
            domain=domain,
            on_failure=on_failure,
            timeout=timeout,
            local_denials=False,
            give_back=True,
        )
        return begun if isinstance(begun, Decision) else await self._call(begun)

    async def wait_until_ready(
        self,
        *descriptors: DescriptorLike,
        wait_max: float,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
        timeout: float | None = None,
        **entries: str,
    ) -> Decision:
        """Take `cost` hits as soon as they fit, waiting at most `wait_max` seconds, which may be infinite.

        Returns a denial at once if it cannot be over by then.
        """
        named = (entries,) if entries else ()
        waiting = Waiting(wait_max, self._clock)
        while True:
            decision = await self.limit(
                *named,
                *descriptors,
                cost=cost,
                domain=domain,
                on_failure=on_failure,
                timeout=timeout,
            )
            wait = waiting.before_retry(decision)
            if wait is None:
                return decision
            await asyncio.sleep(wait)

    def limited(
        self,
        key: Callable[_P, Mapping[str, str]],
        *,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> Callable[[Callable[_P, Awaitable[_R]]], Callable[_P, Awaitable[_R]]]:
        """Limit the calls of a function; `key` gets its arguments and returns the entries.

        The decorated function raises `RateLimited` instead of running if it is denied.
        """

        def decorate(function: Callable[_P, Awaitable[_R]]) -> Callable[_P, Awaitable[_R]]:
            @functools.wraps(function)
            async def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
                decision = await self.limit(key(*args, **kwargs), cost=cost, domain=domain, on_failure=on_failure)
                if not decision.allowed:
                    raise RateLimited(decision)
                return await function(*args, **kwargs)

            return limited

        return decorate

    async def _call(self, call: Call) -> Decision:
        try:
            connections = self._connections.get(asyncio.get_running_loop())
            if connections is None:
                connections = self._connect()
                self._engine.opens_connection(call)
            if call.probed is not None:
                self._start_probe(call, call.probed, connections[call.probed])
            connection = connections[call.server]
            response = await connection.stub(call.request.message(), timeout=call.timeout, metadata=call.metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._renew(call.server, connection)
            return self._engine.failed(call, error.code().name, error.details() or "")
        except asyncio.CancelledError:
            if not _is_task_cancelled():
                return self._engine.failed(call, "CANCELLED", "the connection was closed")
            self._engine.abandoned(call)
            raise
        except BaseException:
            self._engine.abandoned(call)
            raise
        return self._engine.answered(call, response)

    def _start_probe(self, call: Call, server: Server, connection: _Connection) -> None:
        """Send a peek of the request to a server whose breaker is open; only the breaker sees its outcome."""
        message, timeout = self._engine.probe_of(call)

        async def probe() -> None:
            failure = None
            try:
                if await connection.stub(message, timeout=timeout, metadata=call.metadata) is None:
                    failure = ("INTERNAL", "an answer that cannot be decoded")
            except grpc.aio.AioRpcError as error:
                failure = (error.code().name, error.details() or "")
            except BaseException:
                server.breaker.abandoned(Permit.PROBE)
                raise
            self._engine.probe_ended(server, call.sent_ns, failure)

        self._start(probe())

    def _start(self, background: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(background)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _renew(self, server: Server, late: _Connection) -> None:
        """Connect to a name again: a server that hangs does not establish a connection."""
        is_used = self._connections.get(asyncio.get_running_loop(), {}).get(server) is late
        if is_used and may_have_several_addresses(server.target) and late.renewals.begin(self._clock()):
            self._start(self._replace(server, late))

    async def _replace(self, server: Server, late: _Connection) -> None:
        """Replace a connection as soon as another one is established."""
        opened, is_replaced = self._open(server, late.renewals), False
        try:
            await asyncio.wait_for(opened.channel.channel_ready(), OPENED_MAX)
            with self._lock:
                connections = self._connections.get(asyncio.get_running_loop(), {})
                is_replaced = connections.get(server) is late
                if is_replaced:
                    connections[server] = opened
        except asyncio.TimeoutError:
            pass
        finally:
            late.renewals.ended(is_replaced, self._clock())
        # Calls in flight may be to a server that answers.
        await (late if is_replaced else opened).channel.close(IN_FLIGHT_MAX)

    def _connect(self) -> dict[Server, _Connection]:
        """Connect to all servers, so that each can be in use as soon as it is connected."""
        connections = {server: self._open(server, Renewals()) for server in self._engine.servers.all}
        with self._lock:
            # A loop that has ended took its connections with it.
            open_loops = {loop: own for loop, own in self._connections.items() if not loop.is_closed()}
            self._connections = open_loops | {asyncio.get_running_loop(): connections}
        return connections

    def _open(self, server: Server, renewals: Renewals) -> _Connection:
        channel = (
            grpc.aio.insecure_channel(server.target, options=self._options)
            if self._credentials is None
            else grpc.aio.secure_channel(server.target, self._credentials, options=self._options)
        )
        if len(self._engine.servers.all) > 1:
            channel.get_state(try_to_connect=True)
            server.is_connected = self._is_connected(server)
        stub = channel.unary_unary(
            METHOD, request_serializer=pb.RateLimitRequest.SerializeToString, response_deserializer=parsed
        )
        return _Connection(channel, stub, renewals)

    def _is_connected(self, server: Server) -> Callable[[], bool]:
        def is_connected() -> bool:
            connections = self._connections.get(asyncio.get_running_loop())
            return connections is not None and connections[server].channel.get_state() is _READY

        return is_connected

    async def close(self) -> None:
        """Close the connections. Later calls raise `RuntimeError`."""
        self._engine.is_closed = True
        with self._lock:
            loops, self._connections = self._connections, {}
        for connection in loops.pop(asyncio.get_running_loop(), {}).values():
            await connection.channel.close(None)

    async def __aenter__(self) -> Tidegate:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _is_task_cancelled() -> bool:
    """Return whether the current task is cancelled, not only its call: `grpc.aio` cancels those of closed channels."""
    if sys.version_info < (3, 11):
        # Python 3.10 does not know.
        return True
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0

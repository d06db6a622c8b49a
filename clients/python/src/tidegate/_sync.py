"""The blocking client; see `Tidegate`."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import grpc

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
from tidegate._slot import Slot
from tidegate.local import LocalLimit

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: Seconds within which gRPC reports the end of a connection: its thread waits for a fifth of a second at a time.
_REPORT_MAX = 0.5


class _Connection(NamedTuple):
    channel: grpc.Channel
    stub: Any
    is_connected: Callable[[], bool]
    renewals: Renewals


class Tidegate:
    """A client of a Tidegate server. It may be shared by any number of threads.

    `address` is `host:port`, `unix:/path/of/socket`, any other gRPC target, or several of these, which take turns.
    Each has a connection, a breaker and a verified name of its own. The connection is opened by the first
    call: a client that is created before a fork works in each process.
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
        self._connections: dict[Server, _Connection] = {}
        # When a call last found a server unavailable. gRPC's own thread reports the end of a connection only later.
        self._unavailable: dict[Server, float] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def limit(
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
        return begun if isinstance(begun, Decision) else self._call(begun)

    def acquire(
        self,
        *descriptors: DescriptorLike,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
        timeout: float | None = None,
        **entries: str,
    ) -> Slot:
        """Take `cost` hits as `limit` does, and hold slots of requests in flight, and estimates of costs.

        `with client.acquire(user="ann") as slot:` releases them at the end, and `slot.commit(1234)` in it names the
        actual cost. No denial is kept.
        """
        decision = self.limit(
            *descriptors,
            cost=cost,
            domain=domain,
            on_failure=on_failure,
            timeout=timeout,
            local_denials=False,
            **entries,
        )
        return Slot(decision, lambda *sent: self.limit(*sent, domain=domain, local_denials=False), descriptors, entries)

    def peek(
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
        return begun if isinstance(begun, Decision) else self._call(begun)

    def give_back(
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
        return begun if isinstance(begun, Decision) else self._call(begun)

    def wait_until_ready(
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
            decision = self.limit(
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
            time.sleep(wait)

    def limited(
        self,
        key: Callable[_P, Mapping[str, str]],
        *,
        cost: int = 1,
        domain: str | None = None,
        on_failure: OnFailure | None = None,
    ) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
        """Limit the calls of a function; `key` gets its arguments and returns the entries.

        The decorated function raises `RateLimited` instead of running if it is denied.
        """

        def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
            @functools.wraps(function)
            def limited(*args: _P.args, **kwargs: _P.kwargs) -> _R:
                decision = self.limit(key(*args, **kwargs), cost=cost, domain=domain, on_failure=on_failure)
                if not decision.allowed:
                    raise RateLimited(decision)
                return function(*args, **kwargs)

            return limited

        return decorate

    def _call(self, call: Call) -> Decision:
        try:
            connection = self._connections.get(call.server) or self._connect(call.server)
            if call.probed is not None:
                self._probe(call, call.probed)
            response = connection.stub(call.request.message(), timeout=call.timeout, metadata=call.metadata)
        except grpc.RpcError as error:
            # Only calls raise it, and these errors are calls as well.
            failed = cast("grpc.Call", error)
            if failed.code() is grpc.StatusCode.UNAVAILABLE:
                self._unavailable[call.server] = time.monotonic()
            elif failed.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._renew(call.server, connection)
            return self._engine.failed(call, failed.code().name, failed.details() or "")
        except BaseException:
            self._engine.abandoned(call)
            raise
        return self._engine.answered(call, response)

    def _probe(self, call: Call, server: Server) -> None:
        """Send a peek of the request to a server whose breaker is open; only the breaker sees its outcome."""
        message, timeout = self._engine.probe_of(call)

        def ended(future: Any) -> None:
            error = future.exception()
            failure = None
            if isinstance(error, grpc.RpcError):
                failed = cast("grpc.Call", error)
                failure = (failed.code().name, failed.details() or "")
            elif error is not None or future.result() is None:
                failure = ("INTERNAL", "an answer that cannot be decoded")
            self._engine.probe_ended(server, call.sent_ns, failure)

        try:
            connection = self._connections.get(server) or self._connect(server)
            connection.stub.future(message, timeout=timeout, metadata=call.metadata).add_done_callback(ended)
        except BaseException:
            server.breaker.abandoned(Permit.PROBE)
            raise

    def _connect(self, server: Server) -> _Connection:
        """Connect to all servers, so that each can be in use as soon as it is connected."""
        with self._lock:
            if self._engine.is_closed:
                raise RuntimeError("the client is closed; create another one")
            for one in self._engine.servers.all:
                if one not in self._connections:
                    self._use(one, self._open(one, Renewals()))
            return self._connections[server]

    def _use(self, server: Server, connection: _Connection) -> None:
        self._connections[server] = connection
        server.is_connected = connection.is_connected

    def _renew(self, server: Server, late: _Connection) -> None:
        """Connect to a name again: a server that hangs does not establish a connection."""
        is_used = self._connections.get(server) is late
        if is_used and may_have_several_addresses(server.target) and late.renewals.begin(self._clock()):
            threading.Thread(target=self._replace, args=(server, late), daemon=True).start()

    def _replace(self, server: Server, late: _Connection) -> None:
        """Replace a connection as soon as another one is established."""
        opened = self._open(server, late.renewals)
        ready = grpc.channel_ready_future(opened.channel)
        try:
            ready.result(timeout=OPENED_MAX)
            is_ready = True
        except grpc.FutureTimeoutError:
            ready.cancel()
            is_ready = False
        with self._lock:
            is_replaced = is_ready and self._connections.get(server) is late
            if is_replaced:
                self._use(server, opened)
        late.renewals.ended(is_replaced, self._clock())
        if is_replaced:
            # Calls in flight may be to a server that answers.
            self._closed.wait(IN_FLIGHT_MAX)
            late.channel.close()
        else:
            # gRPC's thread that watches the channel raises if it is closed before.
            self._closed.wait(_REPORT_MAX)
            opened.channel.close()

    def _open(self, server: Server, renewals: Renewals) -> _Connection:
        channel = (
            grpc.insecure_channel(server.target, options=self._options)
            if self._credentials is None
            else grpc.secure_channel(server.target, self._credentials, options=self._options)
        )
        states: list[object] = [None]

        def note(state: grpc.ChannelConnectivity) -> None:
            states[0] = state

        if len(self._engine.servers.all) > 1:
            channel.subscribe(note, try_to_connect=True)

        def is_connected() -> bool:
            is_ready = states[0] is grpc.ChannelConnectivity.READY
            return is_ready and time.monotonic() - self._unavailable.get(server, -_REPORT_MAX) >= _REPORT_MAX

        stub = channel.unary_unary(
            METHOD, request_serializer=pb.RateLimitRequest.SerializeToString, response_deserializer=parsed
        )
        return _Connection(channel, stub, is_connected, renewals)

    def close(self) -> None:
        """Close the connections. Later calls raise `RuntimeError`."""
        with self._lock:
            self._engine.is_closed = True
            connections, self._connections = self._connections, {}
        self._closed.set()
        for connection in connections.values():
            connection.channel.close()

    def __enter__(self) -> Tidegate:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

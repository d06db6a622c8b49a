"""Calls without a decision, whatever responds instead of the server; dead addresses; cancelled calls."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from tests.driver import CLIENTS
from tests.servers import serve
from tidegate import RateLimited, Reason, RequestError, Tidegate, aio, keys
from tidegate._renewal import Renewals
from tidegate.asgi import RateLimitMiddleware
from tidegate.keys import BadKeyError, MissingKeyError
from tidegate.testing import denied

HUNDRED = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}"


@contextlib.contextmanager
def ending_with(code: grpc.StatusCode) -> Iterator[str]:
    """Start a gRPC server whose methods end with a status."""

    class Ending(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, _: grpc.HandlerCallDetails) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda _, context: context.abort(code, "of the test"))

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Ending(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@contextlib.contextmanager
def proxy(status: int) -> Iterator[str]:
    """Start a proxy that answers each request over HTTP/2 with a status and no body."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def serve_connection(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as received:
            received.read(24)
            connection.sendall(frame(4, 0, 0, b""))
            while len(head := received.read(9)) == 9:
                length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big")
                payload = received.read(length)
                if kind == 4 and not flags & 1:
                    connection.sendall(frame(4, 1, 0, b""))
                elif kind == 6 and not flags & 1:
                    connection.sendall(frame(6, 1, 0, payload))
                elif kind == 0 and flags & 1:
                    # A literal `:status` by its index in the static table.
                    connection.sendall(frame(1, 5, stream, b"\x08\x03" + str(status).encode()))

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = listener.accept()[0]
                    threading.Thread(target=serve_connection, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(
    ("status", "code"), [(404, "UNIMPLEMENTED"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED")]
)
def test_failing_open_covers_a_proxy_that_answers(
    status: int, code: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str | None] = []
    with proxy(status) as address:
        observers = [lambda decision, _: seen.append(decision.error)]
        client = CLIENTS[kind](address, domain="d", timeout=5, breaker_failures=0, observers=observers)
        decisions = [client.call("limit", {"user": "a"}) for _ in range(3)]
        closed = client.call("limit", {"user": "a"}, on_failure="closed")
        client.close()
    assert {(one.allowed, one.reason, one.error) for one in decisions} == {(True, Reason.FAILED_OPEN, code)}
    assert (closed.allowed, closed.reason) == (False, Reason.FAILED_CLOSED)
    assert seen == [code] * 4
    assert [code in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED]
)
async def test_middleware_that_fails_open_lets_requests_pass_without_the_service(code: grpc.StatusCode) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with ending_with(code) as address:
        async with aio.Tidegate(address, domain="d", timeout=5) as client:
            middleware = RateLimitMiddleware(app, client=client, keys=[keys.constant("user", "a")])
            await middleware(scope, None, send)  # type: ignore[arg-type]
    assert [message["status"] for message in sent] == [200]


def test_a_request_that_the_server_refuses_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with serve(HUNDRED) as server, Tidegate(server.address, domain="d", timeout=5) as client:
        for _ in range(2):
            with pytest.raises(RequestError, match="OUT_OF_RANGE"):
                client.limit(user="x" * 2_000_000)
    assert [message.startswith("the rate limit server refuses a request") for message in caplog.messages] == [True]


@contextlib.contextmanager
def dead(kind: str, host: str, port: int) -> Iterator[None]:
    """Make an address dead: nothing listens, its kernel drops each SYN, or it accepts and stays silent."""
    with contextlib.ExitStack() as stack:
        if kind != "refuses":
            listener = stack.enter_context(socket.socket())
            listener.bind((host, port))
            listener.listen(0 if kind == "swallows" else 128)
        while kind == "swallows":
            # Fill the queue with connections that are never accepted.
            filling = stack.enter_context(socket.socket())
            filling.settimeout(0.3)
            try:
                filling.connect((host, port))
            except TimeoutError:
                break
        yield


@pytest.mark.parametrize("death", ["refuses", "swallows", "hangs"])
def test_a_dead_address_of_a_name_costs_at_most_two_seconds(death: str) -> None:
    with serve(HUNDRED) as server:
        port = int(server.address.split(":")[1])
        with dead(death, "127.0.0.2", port):
            address = f"ipv4:127.0.0.2:{port},127.0.0.1:{port}"
            clients = [make(address, domain="d", timeout=0.5, local_denials=0) for make in CLIENTS.values()]
            began = time.monotonic()
            late: list[list[bool]] = [[] for _ in clients]
            while time.monotonic() < began + 3:
                for client, failures in zip(clients, late, strict=True):
                    error = client.call("limit", {"user": "a"}).error
                    if time.monotonic() > began + 2:
                        failures.append(error is not None)
                time.sleep(0.005)
            for client in clients:
                client.close()
    # A loaded machine exceeds the timeout now and then. The dead address would cost half of the calls.
    assert all(sum(failures) < len(failures) / 10 for failures in late), [sum(failures) for failures in late]


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_server_that_hangs_beside_another_costs_at_most_two_seconds(kind: str) -> None:
    with serve(HUNDRED) as other:
        port = other.address.split(":")[1]
        with serve(HUNDRED, listen=f"127.0.0.2:{port}") as hung:
            of_name = f"ipv4:127.0.0.2:{port},127.0.0.1:{port}"
            runs = [
                Hanging(kind, address, every)
                for address in (of_name, [hung.address, other.address])
                for every in (0.005, 1)
            ]
            await asyncio.gather(*(run.use_both() for run in runs))
            hung.stop()
            await asyncio.gather(*(run.call() for run in runs))
            for run in runs:
                # Half of the calls fail until the server is left, and no more after.
                assert run.undecided, run
                assert run.undecided[-1] - run.undecided[0] < 2, run
                await run.close()


class Hanging:
    """A client of two servers, and the times of its undecided calls."""

    def __init__(self, kind: str, address: str | list[str], every: float) -> None:
        # The timeout is for loaded machines.
        options: dict[str, Any] = {"domain": "d", "timeout": 1, "local_denials": 0}
        self._every = every
        self._client: Any = (aio.Tidegate if kind == "aio" else Tidegate)(address, **options)
        self._is_aio = kind == "aio"
        self._name = f"{kind} {address} {every}"
        self.undecided: list[float] = []

    def __repr__(self) -> str:
        return f"{self._name}: {self.undecided}"

    async def _run(self, method: Any, **arguments: Any) -> Any:
        return await (method(**arguments) if self._is_aio else asyncio.to_thread(method, **arguments))

    async def use_both(self) -> None:
        """Call until both servers have counted."""
        seen: set[int] = set()
        for _ in range(2_000):
            remaining = (await self._run(self._client.limit, user=self._name)).remaining
            if remaining in seen:
                return
            seen.add(remaining)
            await asyncio.sleep(0.005)
        raise AssertionError("one server counted all calls")

    async def call(self) -> None:
        """Call at the client's pace for several seconds."""
        until = time.monotonic() + 4
        while (sent := time.monotonic()) < until:
            if (await self._run(self._client.limit, user=self._name)).error is not None:
                self.undecided.append(time.monotonic())
            await asyncio.sleep(max(0.0, sent + self._every - time.monotonic()))

    async def close(self) -> None:
        await self._run(self._client.close)


def test_renewals_that_do_not_help_become_rare() -> None:
    renewals, second = Renewals(), 1_000_000_000
    now, begun = 100 * second, []
    for _ in range(300):
        if renewals.begin(now):
            assert not renewals.begin(now), "one at a time"
            renewals.ended(True, now)
            begun.append(now // second - 100)
        now += second
    assert begun == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    # If no other server of a name answers, the name is tried once a second.
    now += 200 * second
    for _ in range(3):
        assert renewals.begin(now)
        renewals.ended(False, now)
        assert not renewals.begin(now + second - 1)
        now += second
    # After a minute without a late call, the next late call counts as the first.
    now += 60 * second
    for wait in (1, 2):
        assert renewals.begin(now)
        renewals.ended(True, now)
        assert not renewals.begin(now + wait * second - 1)
        now += wait * second


IN_FLIGHT = (
    "{domain: d, descriptors: [{key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1000, "
    "max_hold: 1h}}]}"
)


async def test_a_call_that_is_cancelled_at_any_moment_keeps_no_slot() -> None:
    with serve(IN_FLIGHT) as server:
        async with aio.Tidegate(server.address, domain="d", timeout=5) as client:
            await client.peek(user="a")

            async def hold() -> None:
                async with client.acquire(user="a"):
                    await asyncio.sleep(60)

            for number in range(300):
                task = asyncio.ensure_future(hold())
                for _ in range(number % 20):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            deadline = time.monotonic() + 5
            while (await client.peek(user="a")).remaining != 1000:
                assert time.monotonic() < deadline, "slots stay held"
                await asyncio.sleep(0.005)


def test_several_event_loops_at_once_use_one_client() -> None:
    with serve(HUNDRED) as server:
        client = aio.Tidegate(server.address, domain="d", timeout=5)

        async def limit() -> str | None:
            return (await client.limit(user="a")).error

        def run(_: int) -> list[str | None]:
            return [asyncio.run(limit()) for _ in range(40)]

        with ThreadPoolExecutor(8) as pool:
            assert {error for errors in pool.map(run, range(8)) for error in errors} == {None}


def test_exceptions_can_be_sent_to_another_process() -> None:
    for error in (
        RequestError("INVALID_ARGUMENT", "too long"),
        RateLimited(denied(retry_after=3, rule="r")),
        MissingKeyError("user"),
        BadKeyError("repeated"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))
    copy = pickle.loads(pickle.dumps(RateLimited(denied(retry_after=3, rule="r"))))
    assert (copy.decision.rule, copy.decision.headers()["Retry-After"]) == ("r", "3")
    with serve(HUNDRED) as server, Tidegate(server.address, domain="d", timeout=5) as client:
        decision = pickle.loads(pickle.dumps(client.limit(user="a")))
        assert (decision.remaining, len(decision.statuses)) == (99_999, 1)


def test_an_argument_that_is_no_descriptor_is_named() -> None:
    client = Tidegate("127.0.0.1:1", domain="d")
    with pytest.raises(TypeError, match=r"a descriptor is 'x'; use entries by name, as in limit\(api_key='x'\)"):
        client.limit("x")  # type: ignore[arg-type]

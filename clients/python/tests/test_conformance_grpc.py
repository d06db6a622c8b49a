"""The contract of middleware, for interceptors of gRPC: marks, and slots that end with their handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import grpc
import grpc.aio
import pytest

from tidegate import Decision, keys
from tidegate.grpc import AioRateLimitInterceptor, RateLimitInterceptor
from tidegate.testing import FakeAioTidegate, FakeCall, FakeTidegate, admitted

ALL = [keys.constant("route", "all")]


def released(client: Any) -> list[str]:
    return [call.entries[0]["slot"] for call in client.calls if "slot" in call.entries[0]]


MARKS = [("x-rate-limited", "yes")]


def marked(call: FakeCall) -> Decision:
    if "slot" in call.entries[0]:
        return admitted()
    decision = admitted(ticket="slot-1")
    decision.request_headers = MARKS
    return decision


class Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Respond with the marks that their handler reads; `Fail` raises."""

    def __init__(self, *, is_async: bool) -> None:
        self._is_async = is_async

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        def seen(context: Any) -> bytes:
            values = [value for key, value in context.invocation_metadata() if key == "x-rate-limited"]
            assert context.peer()
            return ",".join(values).encode()

        def one(_: Any, context: Any) -> bytes:
            return seen(context)

        def several(_: Any, context: Any) -> Iterator[bytes]:
            yield seen(context)

        async def one_async(_: Any, context: Any) -> bytes:
            return seen(context)

        async def several_async(_: Any, context: Any) -> AsyncIterator[bytes]:
            yield seen(context)

        def fail(_: Any, __: Any) -> bytes:
            raise ValueError("of the handler")

        async def fail_async(_: Any, __: Any) -> bytes:
            raise ValueError("of the handler")

        use: Any = {
            "/s/One": grpc.unary_unary_rpc_method_handler(one_async if self._is_async else one),
            "/s/Several": grpc.unary_stream_rpc_method_handler(several_async if self._is_async else several),
            "/s/Fail": grpc.unary_unary_rpc_method_handler(fail_async if self._is_async else fail),
        }
        return use.get(handler_call_details.method)


FORGED = (("x-rate-limited", "none"), ("x-other", "a"))


def test_middleware_marks_of_grpc_replace_what_the_client_sent_and_slots_end_with_their_calls() -> None:
    client = FakeTidegate(marked)
    server = grpc.server(ThreadPoolExecutor(2), interceptors=[RateLimitInterceptor(client, ALL)])
    server.add_generic_rpc_handlers((Methods(is_async=False),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert channel.unary_unary("/s/One", bytes, bytes)(b"", metadata=FORGED, timeout=10) == b"yes"
        assert list(channel.unary_stream("/s/Several", bytes, bytes)(b"", metadata=FORGED, timeout=10)) == [b"yes"]
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/s/Fail", bytes, bytes)(b"", timeout=10)
    server.stop(None).wait()
    assert len(released(client)) == 3


async def test_middleware_marks_of_grpc_with_asyncio_replace_what_the_client_sent_and_slots_end_with_their_calls() -> (
    None
):
    client = FakeAioTidegate(marked)
    server = grpc.aio.server(interceptors=[AioRateLimitInterceptor(client, ALL)])
    server.add_generic_rpc_handlers((Methods(is_async=True),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await channel.unary_unary("/s/One", bytes, bytes)(b"", metadata=FORGED, timeout=10) == b"yes"
        received = [
            one async for one in channel.unary_stream("/s/Several", bytes, bytes)(b"", metadata=FORGED, timeout=10)
        ]
        assert received == [b"yes"]
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/s/Fail", bytes, bytes)(b"", timeout=10)
    await server.stop(None)
    assert len(released(client)) == 3


def test_middleware_holds_the_slot_of_a_grpc_call_until_its_handler_has_ended() -> None:
    reached, opened, ended = Event(), Event(), Event()
    client = FakeTidegate(lambda call: admitted(ticket=None if "slot" in call.entries[0] else "slot-1"))

    class Slow(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, _: grpc.HandlerCallDetails) -> Any:
            def slow(_: Any, context: Any) -> bytes:
                context.add_callback(ended.set)
                reached.set()
                assert opened.wait(30)
                return b""

            return grpc.unary_unary_rpc_method_handler(slow)

    pool = ThreadPoolExecutor(2)
    server = grpc.server(pool, interceptors=[RateLimitInterceptor(client, ALL)])
    server.add_generic_rpc_handlers((Slow(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/s/Slow", bytes, bytes).future(b"")
        assert reached.wait(30)
        call.cancel()
        assert ended.wait(30)
        assert released(client) == []
        opened.set()
    server.stop(None).wait()
    pool.shutdown()
    assert released(client) == ["slot-1"]

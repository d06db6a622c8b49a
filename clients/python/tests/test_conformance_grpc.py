"""The contract of middleware, for interceptors of gRPC: marks, and slots that end with their handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from unittest.mock import Mock

import grpc
import grpc.aio
import pytest

from tidegate import Decision, RateLimited, keys
from tidegate.grpc import AioRateLimitInterceptor, RateLimitInterceptor
from tidegate.testing import FakeAioTidegate, FakeCall, FakeTidegate, admitted, denied

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


class Blocking(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Methods that are no coroutines, of all four kinds: they respond with the mark, and with the requests."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        def seen(context: Any) -> bytes:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            (value,) = [value for key, value in context.invocation_metadata() if key == "x-rate-limited"]
            return str(value).encode()

        def fail(_: Any, context: Any) -> bytes:
            context.abort(grpc.StatusCode.NOT_FOUND, "of the handler")
            return b""

        def denied_inside(_: Any, __: Any) -> bytes:
            raise RateLimited(denied(retry_after=7))

        use: Any = {
            "/s/OneOne": grpc.unary_unary_rpc_method_handler(lambda request, context: seen(context) + request),
            "/s/OneMany": grpc.unary_stream_rpc_method_handler(
                lambda request, context: iter([seen(context), request, request])
            ),
            "/s/ManyOne": grpc.stream_unary_rpc_method_handler(
                lambda requests, context: seen(context) + b"".join(requests)
            ),
            "/s/ManyMany": grpc.stream_stream_rpc_method_handler(
                lambda requests, context: iter([seen(context), *requests])
            ),
            "/s/Fail": grpc.unary_unary_rpc_method_handler(fail),
            "/s/Denied": grpc.unary_unary_rpc_method_handler(denied_inside),
        }
        return use.get(handler_call_details.method)


@contextlib.asynccontextmanager
async def with_blocking_methods(client: FakeAioTidegate) -> AsyncIterator[grpc.aio.Channel]:
    pool = ThreadPoolExecutor(2)
    server = grpc.aio.server(pool, interceptors=[AioRateLimitInterceptor(client, ALL)])
    server.add_generic_rpc_handlers((Blocking(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)
    await asyncio.to_thread(pool.shutdown)


async def test_middleware_of_grpc_with_asyncio_runs_blocking_methods_in_threads_and_ends_their_slots() -> None:
    client = FakeAioTidegate(marked)
    async with with_blocking_methods(client) as channel:
        assert await channel.unary_unary("/s/OneOne", bytes, bytes)(b"a", timeout=10) == b"yesa"
        one_many = channel.unary_stream("/s/OneMany", bytes, bytes)(b"a", timeout=10)
        assert [one async for one in one_many] == [b"yes", b"a", b"a"]
        many_one = channel.stream_unary("/s/ManyOne", bytes, bytes)(iter([b"a", b"b"]), timeout=10)
        assert await many_one == b"yesab"
        many_many = channel.stream_stream("/s/ManyMany", bytes, bytes)(iter([b"a", b"b"]), timeout=10)
        assert [one async for one in many_many] == [b"yes", b"a", b"b"]
        assert len(released(client)) == 4
        for method, code in [("/s/Fail", grpc.StatusCode.NOT_FOUND), ("/s/Denied", grpc.StatusCode.RESOURCE_EXHAUSTED)]:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await channel.unary_unary(method, bytes, bytes)(b"", timeout=10)
            assert failed.value.code() is code
    assert len(released(client)) == 6


async def test_middleware_of_grpc_with_asyncio_denies_calls_of_blocking_methods() -> None:
    async with with_blocking_methods(FakeAioTidegate(denied(retry_after=7))) as channel:
        for call in (
            channel.unary_unary("/s/OneOne", bytes, bytes)(b"", timeout=10),
            channel.stream_stream("/s/ManyMany", bytes, bytes)(iter([b"a"]), timeout=10).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call
            assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            trailers: Any = failed.value.trailing_metadata()
            assert [value for key, value in trailers if key == "retry-after"] == ["7"]


async def test_middleware_of_grpc_with_asyncio_ends_the_slot_of_a_stream_that_is_abandoned() -> None:
    client = FakeAioTidegate(marked)

    async def continuation(details: Any) -> Any:
        return Blocking().service(details)

    interceptor = AioRateLimitInterceptor(client, ALL)
    handler = await interceptor.intercept_service(continuation, Mock(method="/s/OneMany"))
    responses = handler.unary_stream(b"a", Mock(invocation_metadata=lambda: ()))
    assert await asyncio.to_thread(next, responses) == b"yes"
    # As the garbage collector does, in the thread of the event loop.
    responses.close()
    while not released(client):
        await asyncio.sleep(0)


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

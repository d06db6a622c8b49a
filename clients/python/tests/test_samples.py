"""Each sample as a process of its own, under real HTTP: five requests pass, the sixth is denied."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, cast

import grpc
import pytest

from tests.servers import serve
from tidegate import aio, keys
from tidegate.grpc import AioRateLimitInterceptor

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
RULES = """
domain: demo
descriptors:
  - key: api_key
    rate_limit: {name: demo, unit: hour, requests_per_unit: 5, algorithm: token_bucket}
"""


@contextmanager
def running(sample: str, address: str) -> Iterator[int]:
    """Start a sample; the port it listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(SAMPLES / f"{sample}.py"), str(port)],
        env={**os.environ, "TIDEGATE_ADDR": address},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


def curl(port: int, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Send a GET request with curl: the status, and the headers by their names in lower case."""
    sent = [argument for name, value in headers.items() for argument in ("--header", f"{name}: {value}")]
    command = ["curl", "--silent", "--include", "--max-time", "10", *sent, f"http://127.0.0.1:{port}/"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    status_line, *lines = printed.replace("\r", "").partition("\n\n")[0].split("\n")
    pairs = (line.partition(":") for line in lines)
    return int(status_line.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


P = ParamSpec("P")


def repeated(scenario: Callable[P, None]) -> Callable[P, None]:
    """Repeat a failed run: samples have the timeout of 50 ms, which a machine under load exceeds."""

    @functools.wraps(scenario)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(2):
            try:
                return scenario(*args, **kwargs)
            except (AssertionError, pytest.fail.Exception):
                continue
        return scenario(*args, **kwargs)

    return run


@pytest.mark.parametrize("sample", ["fastapi_app", "starlette_app", "flask_app", "django_app"])
@repeated
def test_five_requests_pass_and_the_sixth_is_denied(sample: str) -> None:
    with serve(RULES) as server, running(sample, server.address) as port:
        for remaining in (4, 3, 2, 1, 0):
            status, headers = curl(port, {"x-api-key": "alice"})
            assert status == 200
            assert headers["ratelimit"] == f'"demo";r={remaining}'
            assert "retry-after" not in headers
        for _ in range(2):
            status, headers = curl(port, {"x-api-key": "alice"})
            assert status == 429
            assert headers["ratelimit-policy"] == '"demo";q=5;w=3600'
            assert 715 <= int(headers["retry-after"]) <= 720
        assert curl(port, {"x-api-key": "bob"})[0] == 200
        assert curl(port, {})[0] == 400


@repeated
def test_five_calls_pass_and_the_sixth_is_denied() -> None:
    with serve(RULES) as server, running("grpc_app", server.address) as port:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        say = channel.unary_unary("/sample.Echo/Say", bytes, bytes)
        for _ in range(5):
            assert say(b"hello", timeout=10, metadata=(("x-api-key", "alice"),)) == b"hello"
        with pytest.raises(grpc.RpcError) as denied:
            say(b"hello", timeout=10, metadata=(("x-api-key", "alice"),))
        assert denied.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailers = dict(cast("Any", denied.value).trailing_metadata())
        assert 715 <= int(trailers["retry-after"]) <= 720
        with pytest.raises(grpc.RpcError) as missing:
            say(b"hello", timeout=10)
        assert missing.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        channel.close()


async def test_calls_of_asyncio_servers_are_limited_in_all_four_shapes() -> None:
    async def one(request: Any, context: Any) -> bytes:
        return b"one"

    async def several(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    class Shapes(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return {
                "/s/UnaryUnary": grpc.unary_unary_rpc_method_handler(one, bytes, bytes),
                "/s/UnaryStream": grpc.unary_stream_rpc_method_handler(several, bytes, bytes),
                "/s/StreamUnary": grpc.stream_unary_rpc_method_handler(one, bytes, bytes),
                "/s/StreamStream": grpc.stream_stream_rpc_method_handler(several, bytes, bytes),
            }.get(handler_call_details.method)

    with serve(RULES) as limits:
        client = aio.Tidegate(limits.address, domain="demo", timeout=5)
        by_method = keys.custom("api_key", lambda context: "of all", missing="reject")
        server = grpc.aio.server(interceptors=[AioRateLimitInterceptor(client, [by_method])])
        server.add_generic_rpc_handlers((Shapes(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await channel.unary_unary("/s/UnaryUnary", bytes, bytes)(b"") == b"one"
            received = [response async for response in channel.unary_stream("/s/UnaryStream", bytes, bytes)(b"")]
            assert received == [b"one", b"two"]
            assert await channel.stream_unary("/s/StreamUnary", bytes, bytes)(iter([b""])) == b"one"
            received = [
                response async for response in channel.stream_stream("/s/StreamStream", bytes, bytes)(iter([b""]))
            ]
            assert received == [b"one", b"two"]
            assert await channel.unary_unary("/s/UnaryUnary", bytes, bytes)(b"") == b"one"
            with pytest.raises(grpc.aio.AioRpcError) as denied:
                await channel.unary_unary("/s/UnaryUnary", bytes, bytes)(b"")
            assert denied.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "retry-after" in dict(cast("Any", denied.value).trailing_metadata())
            with pytest.raises(grpc.aio.AioRpcError) as denied:
                [response async for response in channel.unary_stream("/s/UnaryStream", bytes, bytes)(b"")]
            assert denied.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await channel.unary_unary("/s/Unknown", bytes, bytes)(b"")
            assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        await server.stop(None)
        await client.close()

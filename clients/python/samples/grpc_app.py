"""gRPC: a limited server, with a method that returns what it gets.

In this folder of a checkout:
pip install ..; python grpc_app.py 8000; python grpc_app.py 8000 call
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

from tidegate import Tidegate, keys
from tidegate.grpc import RateLimitInterceptor

METHOD = "/sample.Echo/Say"


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """A service without generated code: messages are bytes."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """Return the handler of the one method."""
        if handler_call_details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request, bytes, bytes)


def serve(port: str) -> None:
    client = Tidegate(os.environ.get("TIDEGATE_ADDR", "127.0.0.1:8081"), domain="demo")
    limits = RateLimitInterceptor(client, [keys.header("x-api-key", entry="api_key", missing="reject")])
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[limits])
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def call(port: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        print(channel.unary_unary(METHOD, bytes, bytes)(b"hello", metadata=(("x-api-key", "alice"),)))


if __name__ == "__main__":
    call(sys.argv[1]) if sys.argv[2:] == ["call"] else serve(sys.argv[1])

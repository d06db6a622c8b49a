"""Server interceptors for gRPC: `grpc.server(interceptors=[…])` and `grpc.aio.server(interceptors=[…])`."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from urllib.parse import unquote

import grpc
import grpc.aio

from tidegate import Tidegate, aio
from tidegate import keys as _keys
from tidegate._decision import Decision
from tidegate._engine import RateLimited
from tidegate._guard import Cost, Guard, Keys, Refusal, refusal_of
from tidegate._slot import AioSlot, Slot

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}

# The stubs of grpcio are generic where its classes are not.
if TYPE_CHECKING:
    _ServerInterceptor = grpc.ServerInterceptor[Any, Any]
    _AioServerInterceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _ServerInterceptor = grpc.ServerInterceptor
    _AioServerInterceptor = grpc.aio.ServerInterceptor

# A handler or None. Its stub is generic but its class is not, and documentation generators evaluate this.
_Handler: TypeAlias = Any


class GrpcRequest:
    """The parts of a call that keys read."""

    def __init__(self, method: str, context: Any) -> None:
        #: The context of the call.
        self.native: Any = context
        #: The full name of the method, with its leading slash.
        self.method = method
        #: The same.
        self.path = method
        #: Metadata is not joined.
        self.joins_headers = False

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection; None on Unix sockets."""
        kind, _, rest = str(self.native.peer()).partition(":")
        return unquote(rest).rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else None

    def header(self, name: str) -> Sequence[str]:
        """Return all values of a metadata key, in order."""
        return [
            value if isinstance(value, str) else value.decode("latin-1")
            for key, value in self.native.invocation_metadata() or ()
            if key == name
        ]


class _Interceptor:
    def __init__(
        self,
        keys: Keys,
        cost: Cost,
        skip: Callable[[_keys.RequestInfo], bool] | None,
    ) -> None:
        self._guard = Guard(keys, cost, skip, legacy_headers=False)

    def _trailers(self, decision: Decision) -> tuple[tuple[str, str], ...]:
        headers = self._guard.headers(decision)
        return tuple((name.lower(), value) for name, value in headers.items() if name.lower() != "content-type")


class RateLimitInterceptor(_Interceptor, _ServerInterceptor):
    """Limits the calls of a `grpc.server`, unary and streaming: one hit for each call.

    A denied call ends with RESOURCE_EXHAUSTED and the headers of the decision as trailing metadata.
    """

    def __init__(
        self,
        client: Tidegate,
        keys: Keys,
        *,
        cost: Cost = 1,
        skip: Callable[[_keys.RequestInfo], bool] | None = None,
    ) -> None:
        """Create the interceptor; its options are those of `tidegate.asgi.RateLimitMiddleware`."""
        super().__init__(keys, cost, skip)
        self._client = client

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], _Handler],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the handler of a call."""
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        # Without a handler gRPC answers UNIMPLEMENTED.
        return handler if handler is None else _rewrapped(handler, lambda inner: self._wrap(inner, handler, method))

    def _wrap(self, inner: Any, handler: Any, method: str) -> Any:
        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            with self._admitted(method, context) as admitted:
                return inner(request, admitted)

        def streaming(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            with self._admitted(method, context) as admitted:
                yield from inner(request, admitted)

        return streaming if handler.response_streaming else unary

    @contextlib.contextmanager
    def _admitted(self, method: str, context: grpc.ServicerContext) -> Iterator[Any]:
        """Hold the slots of a call until its handler has ended, even if its client leaves before."""
        outcome = self._guard.decide(self._client, GrpcRequest(method, context))
        if isinstance(outcome, Refusal):
            self._refuse(outcome, context)
        with outcome if isinstance(outcome, Slot) else contextlib.nullcontext():
            if isinstance(outcome, Slot):
                context.set_trailing_metadata(self._trailers(outcome.decision))
            try:
                yield marked(context, None if outcome is None else outcome.decision)
            except RateLimited as limited:
                refusal = refusal_of(limited.decision)
                if refusal is None:
                    raise
                self._refuse(refusal, context)

    def _refuse(self, refusal: Refusal, context: grpc.ServicerContext) -> None:
        if refusal.decision is not None:
            context.set_trailing_metadata(self._trailers(refusal.decision))
        context.abort(_CODES[refusal.status], _details(refusal))


class AioRateLimitInterceptor(_Interceptor, _AioServerInterceptor):
    """Limits the calls of a `grpc.aio.server`; see `RateLimitInterceptor`.

    Handlers that are no coroutines run in the server's `migration_thread_pool`, as without the interceptor; a thread of
    it waits for the decision.
    """

    def __init__(
        self,
        client: aio.Tidegate,
        keys: Keys,
        *,
        cost: Cost = 1,
        skip: Callable[[_keys.RequestInfo], bool] | None = None,
    ) -> None:
        """Create the interceptor; its options are those of `tidegate.asgi.RateLimitMiddleware`."""
        super().__init__(keys, cost, skip)
        self._client = client

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Wrap the handler of a call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        # Without a handler gRPC answers UNIMPLEMENTED; the stubs do not know None here.
        return (
            cast("Any", handler)
            if handler is None
            else _rewrapped(handler, lambda inner: self._wrap(inner, handler, method))
        )

    def _wrap(self, inner: Any, handler: Any, method: str) -> Any:
        if not (inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)):
            return self._wrap_blocking(inner, handler, method, asyncio.get_running_loop())

        async def unary(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async with self._admitted(method, context) as admitted:
                return await inner(request, admitted)

        async def streaming(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            async with self._admitted(method, context) as admitted:
                responses = inner(request, admitted)
                if hasattr(responses, "__aiter__"):
                    async for response in responses:
                        yield response
                else:
                    # The handler writes to the context itself.
                    await responses

        return streaming if handler.response_streaming else unary

    def _wrap_blocking(self, inner: Any, handler: Any, method: str, loop: asyncio.AbstractEventLoop) -> Any:
        """Wrap a handler that gRPC calls in a thread, with a context for that."""

        def streaming(request: Any, context: Any) -> Iterator[Any]:
            deciding = self._guard.decide_async(self._client, GrpcRequest(method, context))
            outcome = asyncio.run_coroutine_threadsafe(deciding, loop).result()
            if isinstance(outcome, Refusal):
                self._refuse_blocking(outcome, context)
                return
            is_abandoned = False
            try:
                if isinstance(outcome, AioSlot):
                    context.set_trailing_metadata(self._trailers(outcome.decision))
                admitted = marked(context, None if outcome is None else outcome.decision)
                if handler.response_streaming:
                    yield from inner(request, admitted)
                else:
                    yield inner(request, admitted)
            except GeneratorExit:
                is_abandoned = True
                raise
            except RateLimited as limited:
                refusal = refusal_of(limited.decision)
                if refusal is None:
                    raise
                self._refuse_blocking(refusal, context)
            finally:
                if isinstance(outcome, AioSlot):
                    ending = asyncio.run_coroutine_threadsafe(outcome.release(), loop)
                    # An abandoned stream may be closed in any thread, also in that of the event loop.
                    if not is_abandoned:
                        ending.result()

        def unary(request: Any, context: Any) -> Any:
            # The context of a thread aborts without an exception: then there is no response.
            return next(iter([*streaming(request, context)]), None)

        return streaming if handler.response_streaming else unary

    def _refuse_blocking(self, refusal: Refusal, context: Any) -> None:
        trailers = () if refusal.decision is None else self._trailers(refusal.decision)
        context.abort(_CODES[refusal.status], _details(refusal), trailers)

    @contextlib.asynccontextmanager
    async def _admitted(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        """Hold the slots of a call until its handler has ended."""
        outcome = await self._guard.decide_async(self._client, GrpcRequest(method, context))
        if isinstance(outcome, Refusal):
            await self._refuse(outcome, context)
        async with outcome if isinstance(outcome, AioSlot) else contextlib.nullcontext():
            if isinstance(outcome, AioSlot):
                context.set_trailing_metadata(self._trailers(outcome.decision))
            try:
                yield marked(context, None if outcome is None else outcome.decision)
            except RateLimited as limited:
                refusal = refusal_of(limited.decision)
                if refusal is None:
                    raise
                await self._refuse(refusal, context)

    async def _refuse(self, refusal: Refusal, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        trailers = () if refusal.decision is None else self._trailers(refusal.decision)
        await context.abort(_CODES[refusal.status], _details(refusal), trailers)


class _Entry(NamedTuple):
    """An entry of metadata."""

    key: str
    value: str | bytes


class _Marked:
    """The context of a call, with a rule's marks in its metadata instead of the client's values of the same names."""

    def __init__(self, context: Any, decision: Decision) -> None:
        self._context = context
        marks = [_Entry(name.lower(), value) for name, value in decision.request_headers]
        names = {mark.key for mark in marks}
        sent = context.invocation_metadata() or ()
        self._metadata = (*(_Entry(key, value) for key, value in sent if key not in names), *marks)

    def invocation_metadata(self) -> tuple[_Entry, ...]:
        """Return the metadata."""
        return self._metadata

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def marked(context: Any, decision: Decision | None) -> Any:
    """Return the context that a handler gets."""
    return context if decision is None or not decision.request_headers else _Marked(context, decision)


def _details(refusal: Refusal) -> str:
    wait = None if refusal.decision is None else refusal.decision.headers().get("Retry-After")
    text = refusal.body.decode("utf-8", "replace").strip()
    return text if wait is None else f"{text}; retry after {wait} s"


def _rewrapped(handler: Any, wrap: Callable[[Any], Any]) -> _Handler:
    """Return a handler of the same kind with another function."""
    makers = {
        (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
        (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
        (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
    }
    make, function = makers[handler.request_streaming, handler.response_streaming]
    return make(
        wrap(function),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )

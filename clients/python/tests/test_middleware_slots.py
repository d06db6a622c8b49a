"""Middleware releases the slots of a request at its end, however it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fastapi
import flask
import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.middleware.http import ConditionalGetMiddleware
from django.test import RequestFactory

import tests.test_conformance_middleware  # noqa: F401 (configures Django)
from tidegate import Decision, Reason, keys
from tidegate import django as of_django
from tidegate import fastapi as of_fastapi
from tidegate import flask as of_flask
from tidegate._ends import when_over
from tidegate.asgi import Message, RateLimitMiddleware, Receive, Scope, Send
from tidegate.flask import RateLimit
from tidegate.testing import FakeAioTidegate, FakeCall, FakeTidegate, admitted

ALL = [keys.constant("route", "all")]
SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": []}


def decide(call: FakeCall) -> Decision:
    return admitted() if is_release(call) else admitted(ticket="slot-1")


def is_release(call: FakeCall) -> bool:
    return "slot" in call.entries[0]


async def receive() -> Message:
    return {"type": "http.disconnect"}


async def send(_: Message) -> None:
    pass


def limited(client: FakeAioTidegate, serve: Callable[[], Any]) -> RateLimitMiddleware:
    async def app(_: Scope, __: Receive, ___: Send) -> None:
        assert not any(map(is_release, client.calls)), "released before the end"
        await serve()

    return RateLimitMiddleware(app, client=client, keys=ALL)


async def test_asgi_releases_the_slots_of_a_request_whose_application_raises() -> None:
    async def fail() -> None:
        raise ValueError("of the application")

    client = FakeAioTidegate(decide)
    with pytest.raises(ValueError, match="of the application"):
        await limited(client, fail)(dict(SCOPE), receive, send)
    assert [is_release(call) for call in client.calls] == [False, True]


async def test_asgi_releases_the_slots_of_a_request_that_is_cancelled() -> None:
    client, serving = FakeAioTidegate(decide), asyncio.Event()

    async def serve() -> None:
        serving.set()
        await asyncio.sleep(60)

    task = asyncio.ensure_future(limited(client, serve)(dict(SCOPE), receive, send))
    await serving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [is_release(call) for call in client.calls] == [False, True]


@pytest.mark.parametrize("propagates", [False, True])
def test_flask_releases_the_slots_of_a_request_whose_view_raises(propagates: bool) -> None:
    client = FakeTidegate(decide)
    app = flask.Flask(__name__)
    app.config["PROPAGATE_EXCEPTIONS"] = propagates
    RateLimit(app, client=client, keys=ALL)

    @app.get("/")
    def view() -> str:
        raise ValueError("of the view")

    if propagates:
        with pytest.raises(ValueError, match="of the view"):
            app.test_client().get("/")
    else:
        app.test_client().get("/").close()
    assert [is_release(call) for call in client.calls] == [False, True]


def eventually_released(client: FakeTidegate, slots: int) -> None:
    """Wait for the thread that ends the requests of discarded responses."""
    until = time.monotonic() + 10
    while sum(map(is_release, client.calls)) < slots and time.monotonic() < until:
        time.sleep(0.005)
    assert sum(map(is_release, client.calls)) == slots


@pytest.mark.parametrize("is_decided", [False, True])
async def test_django_keeps_no_slot_of_a_request_that_is_cancelled_before_its_view(is_decided: bool) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def decide_later(call: FakeCall) -> Decision:
        has_begun.set()
        may_end.wait(10)
        return decide(call)

    client = FakeTidegate(decide_later)

    @of_django.limit(client, ALL)
    async def view(_: HttpRequest) -> HttpResponse:
        raise AssertionError("the view of a request that is cancelled")

    with ThreadPoolExecutor(1) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        serving = asyncio.ensure_future(view(RequestFactory().get("/")))
        while not has_begun.is_set():
            await asyncio.sleep(0)
        if is_decided:
            may_end.set()
            # The only thread has returned the decision, which the event loop has not taken.
            executor.submit(int).result()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        may_end.set()
    assert list(map(is_release, client.calls)) == [False, True]


def test_django_releases_the_slots_of_a_response_that_is_replaced_by_304() -> None:
    client = FakeTidegate(decide)

    @of_django.limit(client, ALL)
    def view(_: HttpRequest) -> HttpResponse:
        return HttpResponse("body", headers={"etag": '"1"'})

    served: Any = ConditionalGetMiddleware(view)(RequestFactory().get("/", headers={"if-none-match": '"1"'}))
    assert served.status_code == 304
    served.close()
    eventually_released(client, 1)


# Adding the headers of the decision raised, and the slot stayed held.
def test_django_releases_the_slots_of_a_view_that_returns_no_response() -> None:
    client = FakeTidegate(decide)
    with pytest.raises(AttributeError):
        of_django.limit(client, ALL)(lambda _: None)(RequestFactory().get("/"))
    assert list(map(is_release, client.calls)) == [False, True]


async def test_django_releases_the_slots_of_an_asynchronous_view_that_returns_no_response() -> None:
    client = FakeTidegate(decide)

    @of_django.limit(client, ALL)
    async def view(_: HttpRequest) -> None:
        pass

    with pytest.raises(AttributeError):
        await view(RequestFactory().get("/"))
    assert list(map(is_release, client.calls)) == [False, True]


def unsendable(call: FakeCall) -> Decision:
    """Decide with headers that HTTP does not allow."""
    if is_release(call):
        return admitted()
    headers = [("x-over", "\u2028\n")]
    return Decision(True, Reason.DECIDED, ticket="slot-1", request_headers=headers, response_headers=headers)


def test_flask_releases_the_slots_of_a_response_that_cannot_have_the_headers() -> None:
    client = FakeTidegate(unsendable)
    app = flask.Flask(__name__)
    for _ in range(2):
        RateLimit(app, client=client, keys=ALL)
    app.add_url_rule("/", view_func=lambda: "hello")
    response = app.test_client().get("/")
    assert response.status_code == 500
    response.close()
    assert list(map(is_release, client.calls)) == [False, False, True, True]


async def test_asgi_releases_the_slots_of_a_request_that_cannot_be_marked() -> None:
    client = FakeAioTidegate(unsendable)
    with pytest.raises(UnicodeEncodeError):
        await RateLimitMiddleware(receive, client=client, keys=ALL)(dict(SCOPE), receive, send)  # type: ignore[arg-type]
    assert list(map(is_release, client.calls)) == [False, True]


async def test_fastapi_releases_the_slots_of_a_request_that_cannot_be_marked() -> None:
    client = FakeAioTidegate(unsendable)
    depends = of_fastapi.limit(client, ALL)
    with pytest.raises(UnicodeEncodeError):
        await anext(depends(fastapi.Request(dict(SCOPE)), fastapi.Response()))
    assert list(map(is_release, client.calls)) == [False, True]


@pytest.mark.parametrize("limits_view", [False, True])
def test_flask_releases_the_slots_of_a_response_that_the_application_replaces(limits_view: bool) -> None:
    client = FakeTidegate(decide)
    app = flask.Flask(__name__)
    # Registered first, it is called last.
    app.after_request(lambda _: flask.Response("another"))

    def view() -> str:
        return "the first"

    if limits_view:
        view = of_flask.limit(client, ALL)(view)
    else:
        RateLimit(app, client=client, keys=ALL)
    app.add_url_rule("/", view_func=view)
    response = app.test_client().get("/")
    assert response.text == "another"
    response.close()
    eventually_released(client, 1)


def test_a_response_ends_its_request_once() -> None:
    ended: list[int] = []
    response = HttpResponse("body")
    closed = when_over(response, lambda: ended.append(1))
    closed()
    closed()
    del response
    discarded = HttpResponse("body")
    when_over(discarded, lambda: ended.append(2))
    del discarded
    until = time.monotonic() + 10
    while len(ended) < 2 and time.monotonic() < until:
        time.sleep(0.005)
    assert ended == [1, 2]


def only(counted: int, seen: list[int]) -> Callable[[int], bool]:
    """Count only the requests with one status, and record each."""

    def counts(status: int) -> bool:
        seen.append(status)
        return status == counted

    return counts


# Attempts at passwords were once given back, and so not limited: the status was taken for 500.
@pytest.mark.parametrize(("error", "status"), [(PermissionDenied, 403), (Http404, 404), (ValueError, 500)])
def test_an_error_of_a_view_of_django_counts_by_the_status_of_its_response(error: type[Exception], status: int) -> None:
    client, seen = FakeTidegate(decide), list[int]()

    @of_django.limit(client, ALL, counts=only(403, seen))
    def view(_: HttpRequest) -> HttpResponse:
        raise error

    with pytest.raises(error):
        view(RequestFactory().get("/"))
    assert seen == [status]
    assert [call.gives_back for call in client.calls] == [False, False, True][: 2 + (status != 403)]


class RefusedError(Exception):
    #: Like the code of errors of other libraries, it is no status.
    code = "e3q8"


@pytest.mark.parametrize(("error", "status"), [(RefusedError, 401), (ValueError, 500)])
def test_an_error_of_a_view_of_flask_counts_by_the_status_of_its_response(error: type[Exception], status: int) -> None:
    client, seen = FakeTidegate(decide), list[int]()
    app = flask.Flask(__name__)
    app.register_error_handler(RefusedError, lambda _: ("no", 401))

    @app.get("/")
    @of_flask.limit(client, ALL, counts=only(401, seen))
    def view() -> str:
        raise error

    response = app.test_client().get("/")
    assert response.status_code == status
    response.close()
    assert seen == [status]
    assert [call.gives_back for call in client.calls] == [False, False, True][: 2 + (status != 401)]

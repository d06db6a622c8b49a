"""Middleware releases the slots of a request at its end, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import flask
import pytest

from tidegate import Decision, keys
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

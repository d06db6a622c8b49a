"""Applications whose responses end in each way of clients/conformance/cases/ends.json."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import flask
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import path
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

LARGE = "x" * (8 << 20)
#: Statuses and bodies by path.
PLAIN = {"body": (200, "body"), "none": (204, ""), "same": (304, ""), "error": (500, "an error"), "large": (200, LARGE)}


class Gate:
    """The gate that the handlers of `/slow` wait for."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def pass_through(self) -> None:
        self._reached.set()
        assert self._opened.wait(30)

    def wait_until_reached(self) -> None:
        assert self._reached.wait(30)

    def open(self) -> None:
        self._opened.set()

    def close(self) -> None:
        self.__init__()  # type: ignore[misc]


GATE = Gate()


async def starlette(request: Request) -> Response:
    name = request.url.path[1:]
    if name == "raise":
        raise ValueError("of the handler")
    if name == "slow":
        await asyncio.to_thread(GATE.pass_through)
        return PlainTextResponse("slow")
    if name == "late":
        try:
            async with asyncio.timeout(0.02):
                await asyncio.sleep(60)
        except TimeoutError:
            return PlainTextResponse("late", 504)
    status, body = PLAIN[name]
    return Response(status_code=status) if status in (204, 304) else PlainTextResponse(body, status)


def _of_wsgi(name: str) -> tuple[int, str]:
    if name == "raise":
        raise ValueError("of the handler")
    if name == "slow":
        GATE.pass_through()
        return 200, "slow"
    if name == "late":
        raise TimeoutError
    return PLAIN[name]


def flask_view(name: str) -> flask.Response:
    status, body = _of_wsgi(name)
    return flask.Response(body, status)


def _django_view(name: str) -> Callable[[HttpRequest], HttpResponseBase]:
    def view(_: HttpRequest) -> HttpResponseBase:
        status, body = _of_wsgi(name)
        return HttpResponse(body, status=status)

    return view


NAMES = [*PLAIN, "raise", "slow", "late"]
DJANGO: list[Any] = [path(name, _django_view(name)) for name in NAMES]

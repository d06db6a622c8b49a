"""The cases of clients/conformance/cases/ends.json: slots end with their requests and handlers, whatever happens."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flask as flask_framework
import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from tests import endings
from tests.servers import CASES, cases, serve
from tests.test_conformance_middleware import over_asgi, over_wsgi
from tidegate import Tidegate, aio, keys

ALL = [keys.constant("route", "all")]
OPTIONS: dict[str, Any] = {"domain": "d", "timeout": 5}
RULES = json.loads((CASES / "ends.json").read_text())["rules"]


@contextmanager
def starlette(address: str) -> Iterator[int]:
    from tidegate.asgi import RateLimitMiddleware

    middleware = [Middleware(RateLimitMiddleware, client=aio.Tidegate(address, **OPTIONS), keys=ALL)]
    with over_asgi(Starlette(routes=[Route("/{name}", endings.starlette)], middleware=middleware)) as port:
        yield port


@contextmanager
def fastapi(address: str) -> Iterator[int]:
    from tidegate.fastapi import limit

    app = FastAPI()
    limited = Depends(limit(aio.Tidegate(address, **OPTIONS), ALL))
    app.add_api_route("/{name}", endings.starlette, methods=["GET", "HEAD"], dependencies=[limited])
    with over_asgi(app) as port:
        yield port


@contextmanager
def flask(address: str) -> Iterator[int]:
    from tidegate.flask import RateLimit

    app = flask_framework.Flask(__name__)
    app.logger.disabled = True
    RateLimit(app, client=Tidegate(address, **OPTIONS), keys=ALL)
    app.add_url_rule("/<name>", view_func=endings.flask_view)
    with over_wsgi(app) as port:
        yield port


@contextmanager
def flask_decorator(address: str) -> Iterator[int]:
    from tidegate.flask import limit

    app = flask_framework.Flask(__name__)
    app.logger.disabled = True
    app.add_url_rule("/<name>", view_func=limit(Tidegate(address, **OPTIONS), ALL)(endings.flask_view))
    with over_wsgi(app) as port:
        yield port


@contextmanager
def django_wsgi(address: str) -> Iterator[int]:
    settings.TIDEGATE = {"client": Tidegate(address, **OPTIONS), "keys": ALL}
    with over_wsgi(get_wsgi_application()) as port:
        yield port


@contextmanager
def django_asgi(address: str) -> Iterator[int]:
    settings.TIDEGATE = {"client": aio.Tidegate(address, **OPTIONS), "keys": ALL}
    with over_asgi(get_asgi_application()) as port:
        yield port


@contextmanager
def django_asgi_with_the_blocking_client(address: str) -> Iterator[int]:
    settings.TIDEGATE = {"client": Tidegate(address, **OPTIONS), "keys": ALL}
    with over_asgi(get_asgi_application()) as port:
        yield port


FRAMEWORKS: list[Callable[..., Any]] = [
    starlette,
    fastapi,
    flask,
    flask_decorator,
    django_wsgi,
    django_asgi,
    django_asgi_with_the_blocking_client,
]
#: Django cancels the handler of a client that has left, which ends it; its thread continues.
CANCELLING = ("django_asgi", "django_asgi_with_the_blocking_client")


def request(port: int, method: str, path: str) -> int:
    """Send a request; the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


@contextmanager
def begun(port: int, method: str, path: str) -> Iterator[socket.socket]:
    """Send a request, and reset its connection in the end."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        yield connection


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.__name__)
@pytest.mark.parametrize("case", cases("ends"), ids=lambda case: str(case["name"]))
def test_middleware_ends(case: Any, framework: Callable[..., Any]) -> None:
    endings.GATE.close()
    with serve(RULES) as server, framework(server.address) as port, Tidegate(server.address, **OPTIONS) as client:

        def wait_until_left(expected: int) -> None:
            deadline = time.monotonic() + 5
            while client.peek(route="all").remaining != expected:
                assert time.monotonic() < deadline, "the slot stays held" if expected else "no slot was taken"
                time.sleep(0.005)

        if case["client"] == "reads":
            assert request(port, case["method"], case["path"]) in case["status"]
        elif case["client"] == "leaves":
            with begun(port, case["method"], case["path"]) as connection:
                head = connection.recv(1024)
                assert int(head.split()[1]) in case["status"]
        else:
            with begun(port, case["method"], case["path"]):
                endings.GATE.wait_until_reached()
            if framework.__name__ not in CANCELLING:
                wait_until_left(0)
                assert request(port, "GET", "/body") == 429
            endings.GATE.open()
        wait_until_left(1)
        assert request(port, "GET", "/body") == 200

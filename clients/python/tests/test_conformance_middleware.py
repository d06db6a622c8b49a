"""The cases of clients/conformance/cases/middleware.json, on each HTTP middleware, over real connections."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import django
import pytest
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from fastapi import Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse

from tests import endings
from tests.servers import cases, misbehaving, serve
from tidegate import Tidegate, aio, keys

MARK = "x-rate-limited"

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    SECRET_KEY="of the tests only",
    MIDDLEWARE=["tidegate.django.RateLimitMiddleware"],
)
django.setup()


def _read_by_django(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.headers.get(MARK, ""))


urlpatterns = [path("", _read_by_django), *endings.DJANGO]

Keys = list[list[keys.Key]]


@contextmanager
def over_asgi(app: Any) -> Iterator[int]:
    """Serve an ASGI application in a thread; the port."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


class _Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def over_wsgi(app: Any) -> Iterator[int]:
    """Serve a WSGI application in a thread; the port."""
    server: WSGIServer = make_server("127.0.0.1", 0, app, _Threads, handler_class=_Silent)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


Options = dict[str, Any]


@contextmanager
def starlette(address: str, options: Options, of_case: Keys) -> Iterator[int]:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Route

    from tidegate.asgi import RateLimitMiddleware

    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(",".join(request.headers.getlist(MARK)))

    client = aio.Tidegate(address, **options)
    middleware = [Middleware(RateLimitMiddleware, client=client, keys=of_case)]
    with over_asgi(Starlette(routes=[Route("/", read)], middleware=middleware)) as port:
        yield port


@contextmanager
def fastapi(address: str, options: Options, of_case: Keys) -> Iterator[int]:
    from tidegate.fastapi import RateLimitHeaders, limit

    client = aio.Tidegate(address, **options)
    app = FastAPI()
    app.add_middleware(RateLimitHeaders)

    def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(",".join(request.headers.getlist(MARK)))

    app.add_api_route("/", read, dependencies=[Depends(limit(client, of_case))])
    with over_asgi(app) as port:
        yield port


@contextmanager
def flask(address: str, options: Options, of_case: Keys) -> Iterator[int]:
    import flask as framework

    from tidegate.flask import RateLimit

    app = framework.Flask(__name__)
    RateLimit(app, client=Tidegate(address, **options), keys=of_case)
    app.add_url_rule("/", view_func=lambda: framework.request.headers.get(MARK, ""))
    with over_wsgi(app) as port:
        yield port


@contextmanager
def django_wsgi(address: str, options: Options, of_case: Keys) -> Iterator[int]:
    settings.TIDEGATE = {"client": Tidegate(address, **options), "keys": of_case}
    with over_wsgi(get_wsgi_application()) as port:
        yield port


@contextmanager
def django_asgi(address: str, options: Options, of_case: Keys) -> Iterator[int]:
    settings.TIDEGATE = {"client": aio.Tidegate(address, **options), "keys": of_case}
    with over_asgi(get_asgi_application()) as port:
        yield port


@contextmanager
def django_asgi_with_the_blocking_client(address: str, options: Options, of_case: Keys) -> Iterator[int]:
    settings.TIDEGATE = {"client": Tidegate(address, **options), "keys": of_case}
    with over_asgi(get_asgi_application()) as port:
        yield port


FRAMEWORKS: list[Callable[..., Any]] = [
    starlette,
    fastapi,
    flask,
    django_wsgi,
    django_asgi,
    django_asgi_with_the_blocking_client,
]


def key_of(given: Any) -> keys.Key:
    if "constant" in given:
        return keys.constant(given["entry"], given["constant"])
    if "client_address" in given:
        return keys.client_address(
            trusted_proxies=1, entry=given["entry"], missing=given["missing"], forwarded=given["client_address"]
        )
    return keys.header(given["header"], entry=given["entry"], missing=given["missing"])


def get(port: int, headers: list[list[str]]) -> tuple[int, dict[str, str], str]:
    """Send a request byte by byte: the status, the headers by their lower-case names, and the body."""
    lines = ["GET / HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *(f"{name}: {value}" for name, value in headers)]
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read().decode()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.__name__)
@pytest.mark.parametrize("case", cases("middleware"), ids=lambda case: str(case["name"]))
def test_middleware(case: Any, framework: Callable[..., Any]) -> None:
    of_case = [[key_of(one) for one in descriptor] for descriptor in case["descriptors"]]
    options = {"domain": "d", "timeout": 5, "on_failure": case["on_failure"]}
    with server_of(case) as address, framework(address, options, of_case) as port:
        for number, request in enumerate(case["requests"]):
            expected = request["expect"]
            for _ in range(request["times"]):
                status, headers, body = get(port, request["headers"])
                where = f"request {number}: {status} {headers} {body}"
                assert status == expected["status"], where
                assert all(name in headers for name in expected.get("headers_present", [])), where
                assert not any(name in headers for name in expected.get("headers_absent", [])), where
                for name, value in expected.get("headers", {}).items():
                    # Some frameworks add a charset.
                    assert headers[name] in (value, f"{value}; charset=utf-8"), where
                assert body == expected.get("body", body), where
                if "seen" in expected:
                    assert body == ",".join(expected["seen"]), where


@contextmanager
def server_of(case: Any) -> Iterator[str]:
    if case["fault"] is not None:
        with misbehaving(case["fault"]) as address:
            yield address
    else:
        with serve(case["rules"]) as server:
            yield server.address

"""Middleware beyond the conformance cases: several limits, WebSockets, decorators, bodies, what counts."""

from __future__ import annotations

import json
from typing import Any, cast

import django.test
import flask
import httpx
import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import WebSocketDenialResponse

import tests.test_conformance_middleware  # noqa: F401 (configures Django)
from tidegate import Decision, keys
from tidegate import django as of_django
from tidegate import fastapi as of_fastapi
from tidegate import flask as of_flask
from tidegate.asgi import RateLimitMiddleware
from tidegate.testing import FakeAioTidegate, FakeCall, FakeTidegate, admitted, denied

ALL = [keys.constant("route", "all")]
OUTER, INNER = [keys.constant("route", "outer")], [keys.constant("route", "inner")]
BOTH, BOTH_DENIED = '"outer";r=7, "inner";r=7', '"outer";r=7, "inner";r=0;t=5'


class Layered:
    """Admits by limits named after their route; the inner limit denies every second request."""

    def __init__(self) -> None:
        self._inner = 0

    def __call__(self, call: FakeCall) -> Decision:
        rule = call.entries[0].get("route", "")
        if rule == "inner":
            self._inner += 1
            if self._inner % 2 == 0:
                return denied(rule=rule, retry_after=5)
        return admitted(rule=rule, remaining=7, ticket=None if "slot" in call.entries[0] else f"of-{rule}")


def released(client: Any) -> list[str]:
    return [call.entries[0]["slot"] for call in client.calls if "slot" in call.entries[0]]


def test_the_limit_of_a_blueprint_of_flask_is_beside_that_of_its_application() -> None:
    client = FakeTidegate(Layered())
    app, blueprint = flask.Flask(__name__), flask.Blueprint("b", __name__)
    of_flask.RateLimit(app, client=client, keys=OUTER)
    of_flask.RateLimit(blueprint, client=client, keys=INNER)
    blueprint.add_url_rule("/", view_func=lambda: flask.g.rate_limit.rule)
    app.register_blueprint(blueprint)
    first, second = [app.test_client().get("/") for _ in range(2)]
    for response in (first, second):
        response.close()
    assert (first.status_code, first.headers["RateLimit"], first.text) == (200, BOTH, "inner")
    assert (second.status_code, second.headers["RateLimit"], second.headers["Retry-After"]) == (429, BOTH_DENIED, "5")
    assert sorted(released(client)) == ["of-inner", "of-outer", "of-outer"]


def test_the_limit_of_a_view_of_flask_is_beside_that_of_its_application() -> None:
    client = FakeTidegate(Layered())
    app = flask.Flask(__name__)
    of_flask.RateLimit(app, client=client, keys=OUTER)
    app.add_url_rule("/", view_func=of_flask.limit(client, INNER)(lambda: flask.g.rate_limit.rule))
    first, second = [app.test_client().get("/") for _ in range(2)]
    for response in (first, second):
        response.close()
    assert (first.status_code, first.headers["RateLimit"], first.text) == (200, BOTH, "inner")
    assert (second.status_code, second.headers["RateLimit"]) == (429, BOTH_DENIED)
    assert sorted(released(client)) == ["of-inner", "of-outer", "of-outer"]


def test_the_limit_of_a_view_of_django_is_beside_that_of_its_middleware() -> None:
    client = FakeTidegate(Layered())
    with django.test.override_settings(TIDEGATE={"client": client, "keys": OUTER}):
        view = of_django.limit(client, INNER)(lambda request: HttpResponse(request.rate_limit.rule))
        serve = of_django.RateLimitMiddleware(view)
        first, second = [serve(RequestFactory().get("/")) for _ in range(2)]
    assert (first.status_code, first["RateLimit"], first.content) == (200, BOTH, b"inner")
    assert (second.status_code, second["RateLimit"]) == (429, BOTH_DENIED)
    assert released(client) == []
    first.close()
    second.close()
    assert sorted(released(client)) == ["of-inner", "of-outer", "of-outer"]


async def test_an_asynchronous_view_of_django_is_limited() -> None:
    client = FakeAioTidegate(Layered())

    @of_django.limit(client, INNER)
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.rate_limit.rule)  # type: ignore[attr-defined]

    first, second = [await view(RequestFactory().get("/")) for _ in range(2)]
    assert [(one.status_code, one["RateLimit"]) for one in (first, second)] == [
        (200, '"inner";r=7'),
        (429, '"inner";r=0;t=5'),
    ]


def test_two_middlewares_of_asgi_list_the_limits_of_both() -> None:
    client = FakeAioTidegate(Layered())

    async def view(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.rate_limit.rule)

    middleware = [Middleware(RateLimitMiddleware, client=client, keys=one) for one in (OUTER, INNER)]
    http = TestClient(Starlette(routes=[Route("/", view)], middleware=middleware))
    first, second = http.get("/"), http.get("/")
    assert (first.status_code, first.headers.get_list("ratelimit"), first.text) == (200, [BOTH], "inner")
    assert (second.status_code, second.headers.get_list("ratelimit")) == (429, [BOTH_DENIED])


def test_dependencies_of_an_application_and_a_route_of_fastapi_list_the_limits_of_both() -> None:
    client = FakeAioTidegate(Layered())
    for with_headers in (False, True):
        app = FastAPI(dependencies=[Depends(of_fastapi.limit(client, OUTER))])
        if with_headers:
            app.add_middleware(of_fastapi.RateLimitHeaders)

        @app.get("/", dependencies=[Depends(of_fastapi.limit(client, INNER))])
        async def view() -> str:
            return "hello"

        http = TestClient(app)
        first, second = http.get("/"), http.get("/")
        assert (first.status_code, first.headers.get_list("ratelimit")) == (200, [BOTH])
        assert second.status_code == 429
    assert len(released(client)) == 6


def websocket_app(client: FakeAioTidegate, kind: str) -> Any:
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    if kind == "middleware":
        middleware = [Middleware(RateLimitMiddleware, client=client, keys=ALL)]
        return Starlette(routes=[WebSocketRoute("/", echo)], middleware=middleware)
    app = FastAPI(dependencies=[Depends(of_fastapi.limit(client, ALL))] if kind == "application" else None)
    dependencies = [Depends(of_fastapi.limit(client, ALL))] if kind == "route" else None
    app.add_api_websocket_route("/", echo, dependencies=dependencies)
    return app


@pytest.mark.parametrize("kind", ["middleware", "application", "route"])
def test_a_denied_websocket_does_not_connect(kind: str) -> None:
    client = FakeAioTidegate(lambda call: denied(retry_after=5))
    with pytest.raises(WebSocketDenialResponse) as refused:
        with TestClient(websocket_app(client, kind)).websocket_connect("/"):
            pass
    response = cast("httpx.Response", refused.value)
    assert (response.status_code, response.headers["retry-after"]) == (429, "5")


@pytest.mark.parametrize("kind", ["middleware", "application", "route"])
def test_a_websocket_holds_its_slot_until_it_is_closed(kind: str) -> None:
    client = FakeAioTidegate(lambda call: admitted(ticket=None if "slot" in call.entries[0] else "slot-1"))
    with TestClient(websocket_app(client, kind)).websocket_connect("/") as websocket:
        assert released(client) == []
        websocket.send_text("hello")
        assert websocket.receive_text() == "hello"
    assert released(client) == ["slot-1"]


def test_a_denied_call_of_a_decorated_function_is_a_denial_in_each_framework() -> None:
    client = FakeTidegate(lambda call: denied(retry_after=5) if "user" in call.entries[0] else admitted())
    asynchronous = FakeAioTidegate()

    @client.limited(lambda: {"user": "a"})
    def send() -> str:
        return "sent"

    fast = FastAPI()
    fast.add_middleware(of_fastapi.RateLimitHeaders)
    fast.add_api_route("/", send)
    middleware = FastAPI()
    middleware.add_middleware(RateLimitMiddleware, client=asynchronous, keys=ALL)
    middleware.add_api_route("/", send)
    for app in (fast, middleware):
        response = TestClient(app).get("/")
        assert (response.status_code, response.headers["retry-after"]) == (429, "5")
    flask_app = flask.Flask(__name__)
    of_flask.RateLimit(flask_app, client=client, keys=ALL)
    flask_app.add_url_rule("/", view_func=send)
    of_view = flask_app.test_client().get("/")
    assert (of_view.status_code, of_view.headers["retry-after"]) == (429, "5")
    with django.test.override_settings(TIDEGATE={"client": client, "keys": ALL}, ROOT_URLCONF=Urls(send)):
        of_project: Any = django.test.Client().get("/")
    assert (of_project.status_code, of_project["retry-after"]) == (429, "5")


class Urls:
    """The routes of a project with one view."""

    def __init__(self, function: Any) -> None:
        from django.urls import path

        self.urlpatterns = [path("", lambda _: HttpResponse(function()))]


def problem(decision: Decision, request: keys.RequestInfo) -> tuple[str, bytes]:
    return "application/problem+json", json.dumps({"instance": request.path, "wait": decision.retry_after}).encode()


def test_an_application_makes_the_bodies_of_its_denials() -> None:
    client, asynchronous = FakeTidegate(denied(retry_after=5)), FakeAioTidegate(denied(retry_after=5))
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, client=asynchronous, keys=ALL, denied_body=problem)
    of_asgi = TestClient(app).get("/a")
    route = FastAPI()
    route.add_api_route(
        "/a", lambda: "", dependencies=[Depends(of_fastapi.limit(asynchronous, ALL, denied_body=problem))]
    )
    of_route = TestClient(route).get("/a")
    flask_app = flask.Flask(__name__)
    of_flask.RateLimit(flask_app, client=client, keys=ALL, denied_body=problem)
    of_app = flask_app.test_client().get("/a")
    with django.test.override_settings(TIDEGATE={"client": client, "keys": ALL, "denied_body": problem}):
        of_project = of_django.RateLimitMiddleware(lambda _: HttpResponse())(RequestFactory().get("/a"))
    for response in (of_asgi, of_route, of_app):
        assert (response.status_code, response.headers["content-type"]) == (429, "application/problem+json")
        assert response.headers["retry-after"] == "5"
    bodies = [of_asgi.content, of_route.content, of_app.data, of_project.content]
    assert {json.dumps(json.loads(body)) for body in bodies} == {'{"instance": "/a", "wait": 5.0}'}


def test_requests_that_do_not_count_give_their_hits_back_at_their_end() -> None:
    def counts(status: int) -> bool:
        return status == 401

    asynchronous, client = FakeAioTidegate(), FakeTidegate()

    async def view(request: Request) -> PlainTextResponse:
        return PlainTextResponse("", request.path_params["status"])

    middleware = [Middleware(RateLimitMiddleware, client=asynchronous, keys=ALL, counts=counts)]
    http = TestClient(Starlette(routes=[Route("/{status:int}", view)], middleware=middleware))
    app = flask.Flask(__name__)
    of_flask.RateLimit(app, client=client, keys=ALL, counts=counts)
    app.add_url_rule("/<int:status>", view_func=lambda status: ("", status))
    for status in (401, 200, 401):
        http.get(f"/{status}")
        app.test_client().get(f"/{status}").close()
    for one in (asynchronous, client):
        assert [call.gives_back for call in one.calls] == [False, False, True, False]


def test_an_exception_of_an_asgi_application_counts_as_a_response_500() -> None:
    client = FakeAioTidegate()
    seen = list[int]()

    async def view(_: Request) -> PlainTextResponse:
        raise ValueError

    def counts(status: int) -> bool:
        seen.append(status)
        return status == 401

    middleware = [Middleware(RateLimitMiddleware, client=client, keys=ALL, counts=counts)]
    http = TestClient(Starlette(routes=[Route("/", view)], middleware=middleware), raise_server_exceptions=False)
    assert http.get("/").status_code == 500
    assert seen == [500]
    assert [call.gives_back for call in client.calls] == [False, True]


def test_a_custom_key_may_be_a_whole_number() -> None:
    client = FakeTidegate()
    app = flask.Flask(__name__)
    values: list[Any] = [7, None, 7.5]
    of_flask.RateLimit(app, client=client, keys=[keys.custom("user", lambda _: values.pop(0), missing="reject")])
    app.add_url_rule("/", view_func=lambda: "hello")
    assert [app.test_client().get("/").status_code for _ in range(3)] == [200, 400, 500]
    assert [call.entries for call in client.calls] == [({"user": "7"},)]


@pytest.mark.parametrize(("missing", "entries"), [("reject", []), ("allow", []), ("shared", [({"user": ""},)])])
def test_a_custom_key_of_only_spaces_is_missing(missing: keys.Missing, entries: list[Any]) -> None:
    client = FakeTidegate()
    app = flask.Flask(__name__)
    of_flask.RateLimit(app, client=client, keys=[keys.custom("user", lambda _: " \t ", missing=missing)])
    app.add_url_rule("/", view_func=lambda: "hello")
    assert app.test_client().get("/").status_code == (400 if missing == "reject" else 200)
    assert [call.entries for call in client.calls] == entries


def test_settings_of_django_that_are_unknown_are_named() -> None:
    with django.test.override_settings(TIDEGATE={"limits": 1}), pytest.raises(ValueError, match="limits"):
        of_django.RateLimitMiddleware(lambda _: HttpResponse())
    assert settings.configured

"""An extension for Flask, and a decorator of views."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import flask

from tidegate import Tidegate
from tidegate import keys as _keys
from tidegate._ends import when_over
from tidegate._engine import RateLimited
from tidegate._guard import Cost, Counts, DeniedBody, Guard, Keys, Refusal, beside, environ_of, refusal_of
from tidegate._slot import Slot


class FlaskRequest:
    """The parts of a Flask request that keys read."""

    def __init__(self, request: flask.Request) -> None:
        #: The request.
        self.native: Any = request

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection."""
        return self.native.environ.get("REMOTE_ADDR") or None

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self.native.method)

    @property
    def path(self) -> str:
        """The path."""
        return str(self.native.path)

    #: WSGI servers join them.
    joins_headers = True

    def header(self, name: str) -> Sequence[str]:
        """Return all values of a header, in order."""
        return list(self.native.headers.getlist(name))


class RateLimit:
    """Limits the requests of a Flask application, or of a blueprint beside its application.

    The decision is at `flask.g.rate_limit`, that of the blueprint if both limit. `RateLimited` of decorated functions
    is answered with 429.
    """

    def __init__(
        self,
        app: flask.Flask | flask.Blueprint | None = None,
        *,
        client: Tidegate,
        keys: Keys,
        cost: Cost = 1,
        skip: Callable[[_keys.RequestInfo], bool] | None = None,
        legacy_headers: bool = False,
        denied_body: DeniedBody | None = None,
        counts: Counts | None = None,
    ) -> None:
        """Create the extension; its options are those of `tidegate.asgi.RateLimitMiddleware`."""
        self._client = client
        self._guard = Guard(keys, cost, skip, legacy_headers, denied_body, counts)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask | flask.Blueprint) -> None:
        """Limit the requests of an application or a blueprint."""
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)
        app.register_error_handler(RateLimited, _respond)

    def _before(self) -> flask.Response | None:
        slot = self._guard.decide(self._client, FlaskRequest(flask.request))
        if isinstance(slot, Refusal):
            return _response(slot)
        if slot is not None:
            _admit(slot)
            _held().append((self, slot))
        return None

    def _after(self, response: flask.Response) -> flask.Response:
        for held in self._own():
            _complete(response, client=self._client, guard=self._guard, slot=held[1])
            _held().remove(held)
        return response

    def _teardown(self, _: BaseException | None) -> None:
        # For a request whose error the application does not handle, or whose response cannot have the headers.
        for held in self._own():
            _held().remove(held)
            self._guard.end(self._client, held[1], 500)

    def _own(self) -> list[tuple[RateLimit, Slot]]:
        """Return what this extension holds for the request."""
        return [held for held in _held() if held[0] is self]


def limit(
    client: Tidegate,
    keys: Keys,
    *,
    cost: Cost = 1,
    skip: Callable[[_keys.RequestInfo], bool] | None = None,
    legacy_headers: bool = False,
    denied_body: DeniedBody | None = None,
    counts: Counts | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that limits a view, below that of its route: `@app.get("/")`, then `@limit(client, keys)`.

    Its options are those of `tidegate.asgi.RateLimitMiddleware`. It is beside the limit of the application, if there is
    one.
    """
    guard = Guard(keys, cost, skip, legacy_headers, denied_body, counts)

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> flask.Response:
            slot = guard.decide(client, FlaskRequest(flask.request))
            if isinstance(slot, Refusal):
                return _response(slot)
            call = flask.current_app.ensure_sync(view)
            if slot is None:
                return flask.make_response(call(*args, **kwargs))
            _admit(slot)
            try:
                response = flask.make_response(call(*args, **kwargs))
            except BaseException:
                slot.release()
                # The application makes the response to an error, whose status counts.
                flask.after_this_request(functools.partial(_complete, client=client, guard=guard, slot=slot))
                raise
            return _complete(response, client=client, guard=guard, slot=slot)

        return limited

    return decorate


def _held() -> list[tuple[RateLimit, Slot]]:
    """Return the slots of the current request."""
    held: list[tuple[RateLimit, Slot]] = flask.g.setdefault("tidegate_held", [])
    return held


def _admit(slot: Slot) -> None:
    flask.g.rate_limit = slot.decision
    flask.request.environ.update(environ_of(slot.decision))


def _complete(response: flask.Response, *, client: Tidegate, guard: Guard, slot: Slot) -> flask.Response:
    """Add the headers of a decision, and end its request after the response's teardown."""
    response.headers.update(beside(response.headers.items(), guard.headers(slot.decision)))
    if guard.has_end(slot.decision):
        end = functools.partial(guard.end, client, slot, response.status_code)
        response.call_on_close(when_over(response, end))
    return response


def _respond(limited: RateLimited) -> flask.Response:
    refusal = refusal_of(limited.decision)
    if refusal is None:
        raise limited
    return _response(refusal)


def _response(refusal: Refusal) -> flask.Response:
    return flask.Response(refusal.body, refusal.status, refusal.headers)

"""Starlette: a limited application, by middleware.

In this folder of a checkout:
pip install .. starlette uvicorn; python starlette_app.py 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
"""

import os
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tidegate import keys
from tidegate.aio import Tidegate
from tidegate.asgi import RateLimitMiddleware


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"hello, {request.state.rate_limit.remaining} left\n")


app = Starlette(
    routes=[Route("/", hello)],
    middleware=[
        Middleware(
            RateLimitMiddleware,
            client=Tidegate(os.environ.get("TIDEGATE_ADDR", "127.0.0.1:8081"), domain="demo"),
            keys=[keys.header("x-api-key", entry="api_key", missing="reject")],
            skip=lambda request: request.path == "/healthz",
        )
    ],
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")

"""Flask: a limited application.

In this folder of a checkout:
pip install .. flask; python flask_app.py 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
"""

import os
import sys

import flask

from tidegate import Tidegate, keys
from tidegate.flask import RateLimit

app = flask.Flask(__name__)
RateLimit(
    app,
    client=Tidegate(os.environ.get("TIDEGATE_ADDR", "127.0.0.1:8081"), domain="demo"),
    keys=[keys.header("x-api-key", entry="api_key", missing="reject")],
)


@app.get("/")
def hello() -> str:
    return "hello\n"


if __name__ == "__main__":
    app.run("127.0.0.1", int(sys.argv[1]))

"""FastAPI: one limited route.

In this folder of a checkout:
pip install .. fastapi uvicorn; python fastapi_app.py 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
"""

import os
import sys

import uvicorn
from fastapi import Depends, FastAPI

from tidegate import keys
from tidegate.aio import Tidegate
from tidegate.fastapi import limit

client = Tidegate(os.environ.get("TIDEGATE_ADDR", "127.0.0.1:8081"), domain="demo")
app = FastAPI()


@app.get("/", dependencies=[Depends(limit(client, [keys.header("x-api-key", entry="api_key", missing="reject")]))])
async def hello() -> dict[str, str]:
    return {"hello": "world"}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")

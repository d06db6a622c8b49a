"""Django: a limited project, in one file.

In this folder of a checkout:
pip install .. django; python django_app.py 8000; curl -H 'x-api-key: alice' 127.0.0.1:8000
"""

import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tidegate import Tidegate, keys


def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello\n")


urlpatterns = [path("", hello)]

if __name__ == "__main__":
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="of the sample only",
        MIDDLEWARE=["tidegate.django.RateLimitMiddleware"],
        TIDEGATE={
            "client": Tidegate(os.environ.get("TIDEGATE_ADDR", "127.0.0.1:8081"), domain="demo"),
            "keys": [keys.header("x-api-key", entry="api_key", missing="reject")],
        },
    )
    django.setup()
    execute_from_command_line([sys.argv[0], "runserver", "--noreload", f"127.0.0.1:{sys.argv[1]}"])

"""Compares a running server with docs/openapi.yaml: python3 openapi.py SPEC PORT TOKEN PHASE.

The phases are `serving`, with and without the token, `failing`, with rules that have errors, and `draining`. Prints a line for each response that was validated, and
fails if a response is not described, does not match its schema, or if a described response never occurred in any phase, except
the responses in NOT_REACHED.
"""

import http.client
import json
import sys

import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

# Responses of a start that restores counters, and of faults that no client can cause.
NOT_REACHED = {
    ("post", "/json", "500"), ("post", "/json", "503"), ("get", "/rules", "500"), ("get", "/rules", "503"),
    ("get", "/rules/status", "503"), ("get", "/rlconfig", "500"), ("get", "/rlconfig", "503"),
    # Other names are refused only where no token protects the responses.
    ("post", "/json", "421"), ("get", "/rules", "421"),
}
DRAINING = {("get", "/readyz", "503"), ("get", "/healthcheck", "500")}


def hit(key, **more):
    return {"domain": "demo", "descriptors": [{"entries": [{"key": key, "value": "a"}], **more}]}


# For each operation: headers (ETAG stands for the tag of the console), the body, or the parameter of the path, and the status.
SERVING = [
    ("post", "/json", {}, hit("api_key"), "200"),
    ("post", "/json", {"tidegate-precision": "exact", "tidegate-windows": ""}, hit("api_key"), "429"),
    ("post", "/json", {}, hit("api_key", hitsAddend="0"), "429"),
    ("post", "/json", {}, hit("week"), "200"),
    ("post", "/json", {}, hit("none", limit={"requestsPerUnit": 3, "unit": "HOUR"}), "200"),
    ("post", "/json", {"tidegate-precision": "exact"}, hit("in_flight"), "200"),
    ("post", "/json", {}, hit("reply"), "429"),
    ("post", "/json", {}, hit("marked"), "200"),
    ("post", "/json", {}, "{", "400"),
    ("post", "/json", {}, "x" * 2000, "413"),
    ("post", "/json", {"content-length": "10"}, "{", "408"),
    ("post", "/json", {"origin": "https://elsewhere.example"}, hit("week"), "403"),
    ("post", "/json", {"content-type": "text/plain"}, hit("week"), "415"),
    ("get", "/rules", {"origin": "https://elsewhere.example"}, None, "403"),
    ("get", "/", {}, None, "200"),
    ("get", "/metrics", {}, None, "200"),
    ("get", "/metrics", {"accept": "application/openmetrics-text;version=1.0.0"}, None, "200"),
    ("get", "/rules", {}, None, "200"),
    ("get", "/rules", {"accept": "application/yaml"}, None, "200"),
    ("get", "/rules/status", {}, None, "200"),
    ("get", "/config", {}, None, "200"),
    ("get", "/version", {}, None, "200"),
    ("get", "/rlconfig", {}, None, "200"),
    ("get", "/stats", {}, None, "200"),
    ("get", "/console", {}, None, "200"),
    ("get", "/console", {"if-none-match": "ETAG"}, None, "304"),
    ("get", "/console/{file}", {}, "app.js", "200"),
    ("get", "/console/{file}", {}, "console.css", "200"),
    ("get", "/console/{file}", {}, "icon.svg", "200"),
    ("get", "/console/{file}", {}, "none.js", "404"),
    ("get", "/livez", {}, None, "200"),
    ("get", "/readyz", {}, None, "200"),
    ("get", "/healthcheck", {}, None, "200"),
]


class Spec:
    def __init__(self, path):
        self.document = yaml.safe_load(open(path, encoding="utf-8"))
        validate(self.document)

    def described(self):
        """Every method, path and status."""
        for path, operations in self.document["paths"].items():
            for method, operation in operations.items():
                for status in operation["responses"]:
                    yield method, path, status

    def operation(self, method, path):
        return self.document["paths"][path][method]

    def resolved(self, value):
        while "$ref" in value:
            target = self.document
            for part in value["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            value = target
        return value

    def check(self, schema, value, what):
        whole = {"allOf": [schema], "components": self.document["components"]}
        errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(whole).iter_errors(value)]
        assert not errors, f"{what}: {errors} in {value!r}"


def content(described, content_type, text):
    """The schema of a body, and the value that it describes."""
    media_type = content_type.split(";")[0]
    schema = described["content"][media_type]["schema"]
    return schema, json.loads(text) if media_type == "application/json" else text


def etag(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/console")
    tag = connection.getresponse().headers["etag"]
    connection.close()
    return tag


def exchange(spec, port, method, path, headers, body, expected):
    described = spec.operation(method, path)
    if isinstance(body, dict):
        request = described["requestBody"]["content"]["application/json"]["schema"]
        spec.check(request, body, f"request of {method} {path}")
        body = json.dumps(body)
    target = path
    if "{" in path:
        target, body = path.format(file=body), None
    if headers.get("if-none-match") == "ETAG":
        headers = {**headers, "if-none-match": etag(port)}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method.upper(), target, body=body, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    what = f"{method} {path} {response.status}"
    assert str(response.status) == expected, f"{what} and not {expected}: {text}"
    assert str(response.status) in described["responses"], f"{what} is not described"
    answer = spec.resolved(described["responses"][str(response.status)])
    if "content" in answer:
        spec.check(*content(answer, response.headers["content-type"], text), what)
    else:
        assert not text, f"{what} has a body that is not described"
    for name, header in answer.get("headers", {}).items():
        header, value = spec.resolved(header), response.headers[name]
        assert value is not None or not header.get("required"), f"{what} has no {name}"
        if value is not None:
            spec.check(header["schema"], value, f"{name} of {what}")
    print(what)
    return method, path, expected


def main():
    spec, port, token, phase = Spec(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    if phase == "draining":
        for method, path, status in sorted(DRAINING):
            exchange(spec, port, method, path, {}, None, status)
        return
    if phase == "failing":
        exchange(spec, port, "get", "/rules/status", {"authorization": f"Bearer {token}"}, None, "200")
        return
    reached = set(DRAINING)
    for method, path, headers, body, status in SERVING:
        with_token = {**headers, "authorization": f"Bearer {token}"}
        reached.add(exchange(spec, port, method, path, with_token, body, status))
    for path, operations in spec.document["paths"].items():
        for method, operation in operations.items():
            if operation.get("security") != []:
                for credentials in ({}, {"authorization": "Bearer wrong"}):
                    reached.add(exchange(spec, port, method, path, credentials, None, "401"))
            other = "get" if method == "post" else "post"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request(other.upper(), path, headers={"authorization": f"Bearer {token}"})
            assert connection.getresponse().status == 405, f"{other} {path} is served and not described"
    missing = set(spec.described()) - reached - NOT_REACHED
    assert not missing, f"described and never seen: {sorted(missing)}"


main()

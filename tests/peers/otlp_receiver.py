"""Receives traces by OTLP, over gRPC and over HTTP, with the protocol's own classes.

The first line printed holds both ports; every further line is one span, as JSON. With two arguments, the paths of a
certificate and of its key, both ports have TLS.
"""

import http.server
import json
import ssl
import sys
import threading
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services

LOCK = threading.Lock()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def write(request, transport):
    for resource in request.resource_spans:
        service = attributes(resource.resource.attributes).get("service.name")
        for scope in resource.scope_spans:
            for span in scope.spans:
                line = {
                    "transport": transport,
                    "service": service,
                    "name": span.name,
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "kind": span.kind,
                    "nanos": span.end_time_unix_nano - span.start_time_unix_nano,
                    "attributes": attributes(span.attributes),
                }
                with LOCK:
                    print(json.dumps(line), flush=True)


class Grpc(services.TraceServiceServicer):
    def Export(self, request, context):
        write(request, "grpc")
        return messages.ExportTraceServiceResponse()


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_traces = self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
        if is_traces:
            write(messages.ExportTraceServiceRequest.FromString(body), "http")
        response = messages.ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if is_traces else 404)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_):
        pass


server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
services.add_TraceServiceServicer_to_server(Grpc(), server)
web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http)
if len(sys.argv) > 1:
    certificate, key = sys.argv[1:]
    with open(certificate, "rb") as cert_file, open(key, "rb") as key_file:
        pair = [(key_file.read(), cert_file.read())]
    grpc_port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(pair))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    web.socket = context.wrap_socket(web.socket, server_side=True)
else:
    grpc_port = server.add_insecure_port("127.0.0.1:0")
server.start()
threading.Thread(target=web.serve_forever, daemon=True).start()
print(json.dumps({"grpc": grpc_port, "http": web.server_port}), flush=True)
# Ends with the test that started it.
sys.stdin.read()

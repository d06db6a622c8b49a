"""Receives traces and metrics by OTLP, over gRPC and over HTTP, with the protocol's own classes.

The first line printed contains both ports; every further line is one span, or one metric with its data points, as JSON. The
first argument chooses traces or metrics. With two more arguments, the paths of a certificate and of its key, both ports have TLS.
"""

import http.server
import json
import ssl
import sys
import threading
from concurrent import futures

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metric_messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metric_services
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as services

SIGNAL = sys.argv[1]
LOCK = threading.Lock()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def write(line):
    with LOCK:
        print(json.dumps(line), flush=True)


def write_spans(request, transport):
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
                if SIGNAL == "traces":
                    write(line)


def write_metrics(request, transport, headers):
    for resource in request.resource_metrics:
        service = attributes(resource.resource.attributes).get("service.name")
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                points = [
                    MessageToDict(point) | {"attributes": attributes(point.attributes)}
                    for point in data.data_points
                ]
                line = {
                    "transport": transport,
                    "service": service,
                    "tenant": headers.get("tenant"),
                    "name": metric.name,
                    "unit": metric.unit,
                    "kind": kind,
                    "is_cumulative": getattr(data, "aggregation_temporality", 2) == 2,
                    "points": points,
                }
                if SIGNAL == "metrics":
                    write(line)


class GrpcTraces(services.TraceServiceServicer):
    def Export(self, request, context):
        write_spans(request, "grpc")
        return messages.ExportTraceServiceResponse()


class GrpcMetrics(metric_services.MetricsServiceServicer):
    def Export(self, request, context):
        write_metrics(request, "grpc", dict(context.invocation_metadata()))
        return metric_messages.ExportMetricsServiceResponse()


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        is_protobuf = self.headers["content-type"] == "application/x-protobuf"
        if is_protobuf and self.path == "/v1/traces":
            write_spans(messages.ExportTraceServiceRequest.FromString(body), "http")
            content = messages.ExportTraceServiceResponse().SerializeToString()
        elif is_protobuf and self.path == "/v1/metrics":
            request = metric_messages.ExportMetricsServiceRequest.FromString(body)
            write_metrics(request, "http", self.headers)
            content = metric_messages.ExportMetricsServiceResponse().SerializeToString()
        else:
            content = None
        self.send_response(404 if content is None else 200)
        content = content or b""
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
services.add_TraceServiceServicer_to_server(GrpcTraces(), server)
metric_services.add_MetricsServiceServicer_to_server(GrpcMetrics(), server)
web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http)
if len(sys.argv) > 2:
    certificate, key = sys.argv[2:]
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
# Waits until the test that started the program ends.
sys.stdin.read()

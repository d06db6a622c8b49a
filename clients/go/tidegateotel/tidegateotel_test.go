package tidegateotel

import (
	"context"
	"net"
	"testing"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestDecisionsAreCountedByReason(t *testing.T) {
	reader := metric.NewManualReader()
	observe, err := Observer(metric.NewMeterProvider(metric.WithReader(reader)).Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		observe(t.Context(), tidegate.Decision{Allowed: true, Reason: tidegate.Decided}, time.Millisecond)
	}
	var found metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &found); err != nil {
		t.Fatal(err)
	}
	metrics := found.ScopeMetrics[0].Metrics
	counted := metrics[0].Data.(metricdata.Sum[int64]).DataPoints[0]
	reason, _ := counted.Attributes.Value("reason")
	if metrics[0].Name != "tidegate.client.decisions" || counted.Value != 2 || reason.AsString() != "decided" {
		t.Fatalf("%+v", metrics[0])
	}
	if metrics[1].Name != "tidegate.client.duration" {
		t.Fatalf("%+v", metrics[1])
	}
}

func TestTheTraceContextIsPassedOn(t *testing.T) {
	previous := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTextMapPropagator(previous) })
	received := make(chan []string, 1)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		received <- metadata.ValueFromIncomingContext(stream.Context(), "traceparent")
		return status.Error(codes.Unavailable, "not decided")
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := tidegate.New(listener.Addr().String(), tidegate.Domain("d"), tidegate.WithTimeout(5*time.Second), WithTraceContext())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	if _, err := client.Allow(trace.ContextWithSpanContext(context.Background(), span), tidegate.Key("user", "a")); err != nil {
		t.Fatal(err)
	}
	expected := "00-01000000000000000000000000000000-0200000000000000-01"
	if traceparent := <-received; len(traceparent) != 1 || traceparent[0] != expected {
		t.Fatal(traceparent)
	}
}

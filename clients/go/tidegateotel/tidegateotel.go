// Package tidegateotel connects a Tidegate client to OpenTelemetry: metrics of decisions, and the trace context of calls.
//
//	observer, err := tidegateotel.Observer(otel.Meter("shop"))
//	client, err := tidegate.New("127.0.0.1:8081", tidegate.WithObserver(observer), tidegateotel.WithTraceContext())
package tidegateotel

import (
	"context"
	"time"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Observer returns an observer that updates the instruments tidegate.client.decisions and tidegate.client.duration.
func Observer(meter metric.Meter) (func(context.Context, tidegate.Decision, time.Duration), error) {
	decisions, err := meter.Int64Counter("tidegate.client.decisions", metric.WithDescription("Decisions by their reason"))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("tidegate.client.duration", metric.WithUnit("s"),
		metric.WithDescription("Time that decisions took"))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, decision tidegate.Decision, taken time.Duration) {
		reason := attribute.String("reason", string(decision.Reason))
		decisions.Add(ctx, 1, metric.WithAttributes(
			attribute.Bool("allowed", decision.Allowed), reason, attribute.String("error", decision.Failure)))
		duration.Record(ctx, taken.Seconds(), metric.WithAttributes(reason))
	}, nil
}

// WithTraceContext passes on the trace context of each call's context, in the format of the global propagator.
func WithTraceContext() tidegate.Option {
	return tidegate.WithDialOptions(grpc.WithChainUnaryInterceptor(inject))
}

func inject(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoker grpc.UnaryInvoker, options ...grpc.CallOption) error {
	carrier := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, carrier)
	for key, value := range carrier {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	return invoker(ctx, method, request, reply, connection, options...)
}

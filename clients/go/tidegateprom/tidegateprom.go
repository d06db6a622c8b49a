// Package tidegateprom counts the decisions of a Tidegate client for Prometheus.
//
//	observer, err := tidegateprom.Observer(prometheus.DefaultRegisterer)
//	client, err := tidegate.New("127.0.0.1:8081", tidegate.WithObserver(observer))
package tidegateprom

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	tidegate "github.com/tidegate/tidegate/clients/go"
)

var buckets = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}

// Observer registers the metrics tidegate_client_decisions_total and tidegate_client_seconds, and returns an observer that
// updates them.
func Observer(registerer prometheus.Registerer) (func(context.Context, tidegate.Decision, time.Duration), error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidegate_client_decisions_total",
		Help: "Decisions by their reason",
	}, []string{"allowed", "reason", "error"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "tidegate_client_seconds",
		Help:    "Time that decisions took",
		Buckets: buckets,
	}, []string{"reason"})
	for _, collector := range []prometheus.Collector{decisions, seconds} {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return func(_ context.Context, decision tidegate.Decision, taken time.Duration) {
		reason := string(decision.Reason)
		decisions.WithLabelValues(strconv.FormatBool(decision.Allowed), reason, decision.Failure).Inc()
		seconds.WithLabelValues(reason).Observe(taken.Seconds())
	}, nil
}

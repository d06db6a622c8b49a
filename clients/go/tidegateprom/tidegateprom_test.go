package tidegateprom

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	tidegate "github.com/tidegate/tidegate/clients/go"
)

func TestDecisionsAreCountedByReason(t *testing.T) {
	registry := prometheus.NewRegistry()
	observe, err := Observer(registry)
	if err != nil {
		t.Fatal(err)
	}
	observe(t.Context(), tidegate.Decision{Allowed: true, Reason: tidegate.Decided}, time.Millisecond)
	observe(t.Context(), tidegate.Decision{Reason: tidegate.FailedClosed, Failure: "UNAVAILABLE"}, time.Millisecond)
	expected := `
# HELP tidegate_client_decisions_total Decisions by their reason
# TYPE tidegate_client_decisions_total counter
tidegate_client_decisions_total{allowed="false",error="UNAVAILABLE",reason="failed_closed"} 1
tidegate_client_decisions_total{allowed="true",error="",reason="decided"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(expected), "tidegate_client_decisions_total"); err != nil {
		t.Fatal(err)
	}
	if count := testutil.CollectAndCount(registry, "tidegate_client_seconds"); count != 2 {
		t.Fatal(count)
	}
	if _, err := Observer(registry); err == nil {
		t.Fatal("the metrics are registered twice")
	}
}

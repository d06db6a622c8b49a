package tidegate

import (
	"strconv"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Limit is a number of requests per window.
type Limit struct {
	// Requests is the number of hits that fit into one window.
	Requests uint32
	// Unit is second, minute, hour, day, week, month or year; empty if the window is not one unit.
	Unit string
	// Name is the limit's name in the rules; empty if it has none.
	Name string
	// Window is the length of the window, exact; 0 if the server does not send it. A month has 30 days, a year 365.
	Window time.Duration
}

// Numbers of Tidegate's fields, which go-control-plane's messages do not have.
const (
	// windowField is in RateLimit.
	windowField protowire.Number = 50_000
	// modeField is in DescriptorStatus.
	modeField protowire.Number = 50_000
)

const day = 24 * time.Hour

// unitWindows has the length of each unit, as the server counts them.
var unitWindows = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day,
	"week": 7 * day, "month": 30 * day, "year": 365 * day,
}

// decodeLimit returns a limit of a response.
func decodeLimit(sent *rls.RateLimitResponse_RateLimit) *Limit {
	unit := unitName(sent.Unit)
	window, isKnown := unitWindows[unit]
	if !isKnown {
		window = decodeWindow(sent.ProtoReflect().GetUnknown())
	}
	return &Limit{sent.RequestsPerUnit, unit, sent.Name, window}
}

// decodeWindow returns the window among unknown fields; 0 if there is none.
func decodeWindow(fields []byte) time.Duration {
	field, kind := findField(fields, windowField)
	var window durationpb.Duration
	value, length := protowire.ConsumeBytes(field)
	if kind != protowire.BytesType || length < 0 || proto.Unmarshal(value, &window) != nil {
		return 0
	}
	return window.AsDuration()
}

// decodeMode returns the mode among unknown fields; empty if there is none.
func decodeMode(fields []byte) Mode {
	field, kind := findField(fields, modeField)
	value, length := protowire.ConsumeVarint(field)
	switch {
	case kind != protowire.VarintType || length < 0:
		return ""
	case value == 1:
		return Quota
	case value == 2:
		return Queued
	}
	return ""
}

// findField returns the bytes after the tag of a field, and its type; nothing and -1 if there is none.
func findField(fields []byte, wanted protowire.Number) ([]byte, protowire.Type) {
	for len(fields) > 0 {
		number, kind, length := protowire.ConsumeTag(fields)
		if length < 0 {
			break
		}
		fields = fields[length:]
		if number == wanted {
			return fields, kind
		}
		if length = protowire.ConsumeFieldValue(number, kind, fields); length < 0 {
			break
		}
		fields = fields[length:]
	}
	return nil, -1
}

func unitName(unit rls.RateLimitResponse_RateLimit_Unit) string {
	switch unit {
	case rls.RateLimitResponse_RateLimit_SECOND:
		return "second"
	case rls.RateLimitResponse_RateLimit_MINUTE:
		return "minute"
	case rls.RateLimitResponse_RateLimit_HOUR:
		return "hour"
	case rls.RateLimitResponse_RateLimit_DAY:
		return "day"
	case rls.RateLimitResponse_RateLimit_WEEK:
		return "week"
	case rls.RateLimitResponse_RateLimit_MONTH:
		return "month"
	case rls.RateLimitResponse_RateLimit_YEAR:
		return "year"
	default:
		return ""
	}
}

// numbers returns the name of an unnamed limit: 5-per-minute, 5-per-10s, or 5 if its window is not known.
func (l Limit) numbers() string {
	name := strconv.FormatUint(uint64(l.Requests), 10)
	switch {
	case l.Unit != "":
		return name + "-per-" + l.Unit
	case l.Window > 0:
		return name + "-per-" + windowText(l.Window)
	default:
		return name
	}
}

// windowText returns a window as a whole number of the largest possible unit: 10s, 250ms.
func windowText(window time.Duration) string {
	scales := []struct {
		unit   time.Duration
		suffix string
	}{
		{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"},
		{time.Millisecond, "ms"}, {time.Microsecond, "us"},
	}
	for _, scale := range scales {
		if window%scale.unit == 0 {
			return strconv.FormatInt(int64(window/scale.unit), 10) + scale.suffix
		}
	}
	return strconv.FormatInt(int64(window), 10) + "ns"
}

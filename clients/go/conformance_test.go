package tidegate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// nanos is [milliseconds, nanoseconds more], or null.
type nanos []int64

func (n nanos) duration() time.Duration {
	if n == nil {
		return Never
	}
	return time.Duration(n[0])*time.Millisecond + time.Duration(n[1])
}

// caseLimit is a limit, with its window if it is not one unit.
type caseLimit struct {
	Requests   uint32
	Unit, Name string
	Window     nanos
}

func (c *caseLimit) limit() *Limit {
	if c == nil {
		return nil
	}
	limit := Limit{c.Requests, c.Unit, c.Name, unitWindows[c.Unit]}
	if c.Window != nil {
		limit.Window = c.Window.duration()
	}
	return &limit
}

// hits is a number, or a string beyond 2^53.
type hits uint64

func (h *hits) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseUint(strings.Trim(string(text), `"`), 10, 64)
	*h = hits(number)
	return err
}

type caseDescriptor struct {
	Entries  [][2]string
	Cost     *hits
	GiveBack bool `json:"give_back"`
	Limit    *Limit
}

func (c caseDescriptor) descriptor() Descriptor {
	var descriptor Descriptor
	for _, entry := range c.Entries {
		descriptor = descriptor.And(entry[0], entry[1])
	}
	if c.Cost != nil {
		descriptor = descriptor.Cost(uint64(*c.Cost))
	}
	if c.Limit != nil {
		descriptor = descriptor.Limit(c.Limit.Requests, c.Limit.Unit)
	}
	if c.GiveBack {
		descriptor = descriptor.GivingBack()
	}
	return descriptor
}

type caseStatus struct {
	OverLimit  bool `json:"over_limit"`
	Limit      json.RawMessage
	Remaining  *uint32
	ResetAfter json.RawMessage `json:"reset_after"`
}

func parse[T any](t *testing.T, text json.RawMessage) T {
	t.Helper()
	var parsed T
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

func headersOf(pairs [][2]string) []Header {
	var headers []Header
	for _, pair := range pairs {
		headers = append(headers, Header{pair[0], pair[1]})
	}
	return headers
}

func TestVectors(t *testing.T) {
	type scenario struct {
		Name        string
		Needs       []string
		StartUnixMs int64 `json:"start_unix_ms"`
		Compat      *string
		Rules       string
		Steps       []struct {
			At          []int64
			Times       int64
			EveryMs     int64 `json:"every_ms"`
			Descriptors []caseDescriptor
			Decision    struct {
				Allowed         bool
				Statuses        []caseStatus
				RequestHeaders  [][2]string `json:"request_headers"`
				ResponseHeaders [][2]string `json:"response_headers"`
				Body            string
			}
		}
	}
	for _, scenario := range cases[scenario](t, "vectors", "scenarios") {
		if len(scenario.Needs) > 0 {
			continue
		}
		t.Run(scenario.Name, func(t *testing.T) {
			arguments := []string{"--test-clock"}
			if scenario.Compat != nil {
				arguments = append(arguments, "--compat", *scenario.Compat)
			}
			server := serve(t, scenario.Rules, arguments...)
			set, client := setClock(t, server.address), newClient(t, server.address, WithLocalDenials(0))
			for number, step := range scenario.Steps {
				for repetition := range step.Times {
					millis := scenario.StartUnixMs + step.At[0] + repetition*step.EveryMs
					set(millis*1_000_000 + step.At[1])
					var options []CallOption
					for _, descriptor := range step.Descriptors {
						options = append(options, descriptor.descriptor())
					}
					decision, err := client.Allow(context.Background(), options...)
					if err != nil {
						t.Fatal(err)
					}
					where := fmt.Sprintf("step %d: %+v", number, decision)
					expected := step.Decision
					if decision.Reason != Decided || decision.Allowed != expected.Allowed || string(decision.Body) != expected.Body ||
						!slices.Equal(decision.RequestHeaders, headersOf(expected.RequestHeaders)) ||
						!slices.Equal(decision.ResponseHeaders, headersOf(expected.ResponseHeaders)) ||
						len(decision.Statuses) != len(expected.Statuses) {
						t.Fatalf("%s is not %+v", where, expected)
					}
					for i, status := range decision.Statuses {
						checkStatus(t, where, status, expected.Statuses[i])
					}
				}
			}
		})
	}
}

func checkStatus(t *testing.T, where string, status Status, expected caseStatus) {
	t.Helper()
	if status.OverLimit != expected.OverLimit {
		t.Fatalf("%s: over limit is not %t", where, expected.OverLimit)
	}
	if expected.Remaining != nil && status.Remaining != *expected.Remaining {
		t.Fatalf("%s: remaining is not %d", where, *expected.Remaining)
	}
	if expected.ResetAfter != nil {
		if reset := parse[nanos](t, expected.ResetAfter).duration(); status.ResetAfter != reset {
			t.Fatalf("%s: the reset is not %s", where, reset)
		}
	}
	if expected.Limit != nil {
		if limit := parse[*caseLimit](t, expected.Limit).limit(); !reflect.DeepEqual(status.Limit, limit) {
			t.Fatalf("%s: the limit is not %+v", where, limit)
		}
	}
}

func TestHeaders(t *testing.T) { testHeaders(t, "headers") }

func TestQuotaHeaders(t *testing.T) { testHeaders(t, "quota") }

func testHeaders(t *testing.T, file string) {
	type headerCase struct {
		Name     string
		Decision struct {
			Allowed         bool
			Reason          Reason
			ResponseHeaders [][2]string `json:"response_headers"`
			Statuses        []struct {
				OverLimit  bool `json:"over_limit"`
				Limit      *caseLimit
				Remaining  uint32
				ResetAfter nanos `json:"reset_after"`
				Mode       Mode
			}
		}
		Fields struct {
			Limit, Remaining *uint32
			ResetAfter       nanos `json:"reset_after"`
			RetryAfter       nanos `json:"retry_after"`
			Rule             string
		}
		Headers, Legacy map[string]string
	}
	for _, c := range cases[headerCase](t, file, "cases") {
		t.Run(c.Name, func(t *testing.T) {
			var statuses []Status
			for _, status := range c.Decision.Statuses {
				statuses = append(statuses, Status{status.OverLimit, status.Limit.limit(), status.Remaining, status.ResetAfter.duration(), status.Mode})
			}
			decision := newDecision(c.Decision.Allowed, statuses)
			decision.Reason = c.Decision.Reason
			decision.ResponseHeaders = headersOf(c.Decision.ResponseHeaders)
			fields := c.Fields
			if decision.Limited != (fields.Limit != nil) || decision.ResetAfter != fields.ResetAfter.duration() ||
				decision.RetryAfter != fields.RetryAfter.duration() || decision.Rule != fields.Rule {
				t.Fatalf("%+v is not %+v", decision, fields)
			}
			if fields.Limit != nil && (decision.Limit != *fields.Limit || decision.Remaining != *fields.Remaining) {
				t.Fatalf("%+v is not %d, %d", decision, *fields.Limit, *fields.Remaining)
			}
			expected := http.Header{}
			for name, value := range c.Headers {
				expected.Set(name, value)
			}
			if headers := decision.Headers(); !reflect.DeepEqual(headers, expected) {
				t.Fatalf("%v is not %v", headers, expected)
			}
			for name, value := range c.Legacy {
				expected.Set(name, value)
			}
			if headers := decision.LegacyHeaders(); !reflect.DeepEqual(headers, expected) {
				t.Fatalf("%v is not %v", headers, expected)
			}
		})
	}
}

func TestLocalDenials(t *testing.T) { testLocalDenials(t, "local_denials") }

func TestLocalDenialsAreKeptForABoundedTime(t *testing.T) { testLocalDenials(t, "retention") }

func TestSlots(t *testing.T) {
	type slotCase struct {
		Name, Rules string
		Steps       []struct {
			At          nanos
			Op, Slot    string
			Descriptors []caseDescriptor
			Cost        *uint64
			Expect      struct {
				Allowed, Ticket, Held bool
				Remaining             uint32
			}
		}
	}
	const start = 1_700_006_400_000_000_000
	ctx := context.Background()
	for _, c := range cases[slotCase](t, "slots", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			server := serve(t, c.Rules, "--test-clock")
			set := setClock(t, server.address)
			client := newClient(t, server.address)
			slots := map[string]*Slot{}
			for number, step := range c.Steps {
				set(start + int64(step.At.duration()))
				var call []CallOption
				for _, descriptor := range step.Descriptors {
					call = append(call, descriptor.descriptor())
				}
				switch step.Op {
				case "acquire":
					slot, err := client.Acquire(ctx, append(call, Cost(*step.Cost))...)
					if err != nil || slot.Allowed != step.Expect.Allowed || (slot.Ticket != "") != step.Expect.Ticket {
						t.Fatalf("step %d: %+v, %v", number, slot, err)
					}
					slots[step.Slot] = slot
				case "release":
					if step.Cost == nil {
						slots[step.Slot].Release()
					} else {
						slots[step.Slot].ReleasePart(*step.Cost)
					}
				case "renew":
					held, err := slots[step.Slot].Renew(ctx)
					if err != nil || held != step.Expect.Held {
						t.Fatalf("step %d: held %v, %v", number, held, err)
					}
				case "commit":
					slots[step.Slot].Commit(*step.Cost)
				case "cancel":
					slots[step.Slot].Cancel()
				case "end":
					func() { defer slots[step.Slot].Release() }()
				case "peek":
					decision, err := client.Peek(ctx, call...)
					if err != nil || decision.Allowed != step.Expect.Allowed || decision.Remaining != step.Expect.Remaining {
						t.Fatalf("step %d: %+v, %v", number, decision, err)
					}
				}
			}
		})
	}
}

func testLocalDenials(t *testing.T, file string) {
	type denialCase struct {
		Name, Rules string
		Client      struct {
			LocalDenialsMax   *int   `json:"local_denials_max"`
			LocalDenialsForMs *int64 `json:"local_denials_for_ms"`
		}
		Steps []struct {
			At           nanos
			Op           string
			Descriptors  []caseDescriptor
			Cost         uint64
			LocalDenials bool  `json:"local_denials"`
			TimeoutMs    int64 `json:"timeout_ms"`
			Expect       struct {
				Allowed    bool
				Reason     Reason
				RetryAfter json.RawMessage `json:"retry_after"`
			}
		}
	}
	const start = 1_700_006_400_000_000_000
	for _, c := range cases[denialCase](t, file, "cases") {
		t.Run(c.Name, func(t *testing.T) {
			server := serve(t, c.Rules, "--test-clock")
			set := setClock(t, server.address)
			var own time.Duration
			options := []Option{func(s *settings) { s.now = func() time.Duration { return own } }}
			if c.Client.LocalDenialsMax != nil {
				options = append(options, WithLocalDenials(*c.Client.LocalDenialsMax))
			}
			if c.Client.LocalDenialsForMs != nil {
				options = append(options, WithLocalDenialsFor(time.Duration(*c.Client.LocalDenialsForMs)*time.Millisecond))
			}
			client := newClient(t, server.address, options...)
			for number, step := range c.Steps {
				own = step.At.duration()
				set(start + int64(own))
				var call []CallOption
				for _, descriptor := range step.Descriptors {
					call = append(call, descriptor.descriptor())
				}
				if !step.LocalDenials {
					call = append(call, WithoutLocalDenials())
				}
				if step.TimeoutMs != 0 {
					call = append(call, Timeout(time.Duration(step.TimeoutMs)*time.Millisecond))
				}
				var decision Decision
				var err error
				switch step.Op {
				case "limit":
					decision, err = client.Allow(context.Background(), append(call, Cost(step.Cost))...)
				case "peek":
					decision, err = client.Peek(context.Background(), call...)
				case "give_back":
					decision, err = client.GiveBack(context.Background(), append(call, Cost(step.Cost))...)
				}
				if err != nil {
					t.Fatal(err)
				}
				if decision.Allowed != step.Expect.Allowed || decision.Reason != step.Expect.Reason {
					t.Fatalf("step %d: %+v is not %+v", number, decision, step.Expect)
				}
				if step.Expect.RetryAfter != nil {
					if retry := parse[nanos](t, step.Expect.RetryAfter).duration(); decision.RetryAfter != retry {
						t.Fatalf("step %d: %+v: the wait is not %s", number, decision, retry)
					}
				}
			}
		})
	}
}

func TestFailures(t *testing.T) {
	type failureCase struct {
		Name, Fault string
		Client      struct {
			DeadlineMs      int64  `json:"deadline_ms"`
			OnFailure       string `json:"on_failure"`
			BreakerFailures int    `json:"breaker_failures"`
			BreakerOpenMs   int64  `json:"breaker_open_ms"`
		}
		Expect []struct {
			AdvanceMs int64 `json:"advance_ms"`
			Calls     int
			Allowed   bool
			Reason    Reason
			Errors    []string
			Message   string
			Remaining *uint32
		}
		ElapsedMsMax *int64 `json:"elapsed_ms_max"`
	}
	for _, c := range cases[failureCase](t, "failures", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			policy := map[string]Policy{"open": FailOpen, "closed": FailClosed}[c.Client.OnFailure]
			var own time.Duration
			client := newClient(t, misbehaving(t, c.Fault),
				WithTimeout(time.Duration(c.Client.DeadlineMs)*time.Millisecond),
				WithConnectTimeout(0),
				WithPolicy(policy),
				WithBreaker(c.Client.BreakerFailures, time.Duration(c.Client.BreakerOpenMs)*time.Millisecond),
				func(s *settings) { s.now = func() time.Duration { return own } })
			started := time.Now()
			for _, expected := range c.Expect {
				own += time.Duration(expected.AdvanceMs) * time.Millisecond
				for number := range expected.Calls {
					decision, err := client.Allow(context.Background(), Key("user", "a"))
					if err != nil {
						t.Fatal(err)
					}
					isExpected := len(expected.Errors) == 0 && decision.Failure == "" || slices.Contains(expected.Errors, decision.Failure)
					isNamed := strings.Contains(strings.ToLower(decision.FailureMessage), expected.Message)
					if decision.Allowed != expected.Allowed || decision.Reason != expected.Reason || !isExpected || !isNamed {
						t.Fatalf("call %d: %+v is not %+v", number, decision, expected)
					}
					if expected.Remaining != nil && decision.Remaining != *expected.Remaining {
						t.Fatalf("call %d: %d remain, not %d", number, decision.Remaining, *expected.Remaining)
					}
				}
			}
			if elapsed := time.Since(started).Milliseconds(); c.ElapsedMsMax != nil && elapsed > *c.ElapsedMsMax {
				t.Fatalf("%d ms are more than %d", elapsed, *c.ElapsedMsMax)
			}
		})
	}
}

func TestClientAddresses(t *testing.T) {
	type addressCase struct {
		Name           string
		TrustedProxies int `json:"trusted_proxies"`
		Peer           *string
		XForwardedFor  []string `json:"x_forwarded_for"`
		Expect         *string
	}
	for _, c := range cases[addressCase](t, "client_addresses", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			peer := ""
			if c.Peer != nil {
				peer = *c.Peer
			}
			address, isKnown := ClientAddress(peer, c.XForwardedFor, c.TrustedProxies)
			if isKnown != (c.Expect != nil) || isKnown && address != *c.Expect {
				t.Fatalf("%q, %t", address, isKnown)
			}
		})
	}
}

func TestClientAddressesOfForwarded(t *testing.T) {
	type forwardedCase struct {
		Name           string
		TrustedProxies int `json:"trusted_proxies"`
		Forwarded      []string
		Expect         *string
	}
	for _, c := range cases[forwardedCase](t, "forwarded", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			address, isKnown := ForwardedAddress(c.Forwarded, c.TrustedProxies)
			if isKnown != (c.Expect != nil) || isKnown && address != *c.Expect {
				t.Fatalf("%q", address)
			}
		})
	}
}

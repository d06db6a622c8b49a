package tidegate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

func TestKeysThatAreNoUTF8AreTheCallersErrorAndNoFailure(t *testing.T) {
	client := newClient(t, serve(t, hundred).address, WithPolicy(FailClosed))
	for range 6 {
		for _, option := range [][]CallOption{{Key("\xff", "a")}, {Key("user", "a"), InDomain("\xff")}} {
			var refused *RequestError
			if decision, err := client.Allow(t.Context(), option...); !errors.As(err, &refused) || refused.Code != codes.InvalidArgument {
				t.Fatalf("%+v, %v", decision, err)
			}
		}
	}
	limit := client.Middleware(Limits{Keys: []KeySource{KeyFunc("user", func(r Request) string { return r.Path }, Reject)}})
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for path, expected := range map[string]int{"/a%ff": http.StatusOK, "/a": http.StatusOK} {
		for range 6 {
			response := httptest.NewRecorder()
			if handler.ServeHTTP(response, httptest.NewRequest("GET", path, nil)); response.Code != expected {
				t.Fatalf("%s: %d", path, response.Code)
			}
		}
	}
}

func TestCodesHaveTheNamesOfTheSpecification(t *testing.T) {
	names := []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
		"UNAUTHENTICATED",
	}
	for code, expected := range names {
		if name := codeName(codes.Code(code)); name != expected {
			t.Errorf("%s is not %s", name, expected)
		}
	}
}

func TestEntriesWithoutKeyAndCallsAfterCloseAreErrors(t *testing.T) {
	client := newClient(t, unused(t))
	if _, err := client.Allow(t.Context(), Key("", "a")); err == nil {
		t.Fatal("an entry without key is sent")
	}
	for range 2 {
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if decision, err := client.Allow(t.Context(), Key("user", "a")); !errors.Is(err, ErrClosed) {
		t.Fatalf("%+v, %v", decision, err)
	}
}

func TestFailuresAreLoggedOnceAMinuteAndAnObserversPanicCostsNoDecision(t *testing.T) {
	var text bytes.Buffer
	now := time.Duration(0)
	observed := 0
	address := unused(t)
	client := newClient(t, address, WithBreaker(0, 0),
		WithLogger(slog.New(slog.NewTextHandler(&text, nil))),
		WithObserver(func(context.Context, Decision, time.Duration) {
			observed++
			panic("of an observer")
		}),
		func(s *settings) { s.now = func() time.Duration { return now } })
	for range 10 {
		allow(t, client, Key("user", "a"))
	}
	now = logEvery
	allow(t, client, Key("user", "a"))
	warnings := strings.Count(text.String(), "no answer from the rate limit server (UNAVAILABLE: ")
	if warnings != 2 || !strings.Contains(text.String(), "failures=10") || strings.Count(text.String(), "panicked") != observed || observed != 11 {
		t.Fatal(text.String())
	}
	serveOn(t, address, hundred)
	for deadline := time.Now().Add(15 * time.Second); allow(t, client, Key("user", "a")).Reason != Decided; {
		if time.Now().After(deadline) {
			t.Fatal("no decision")
		}
	}
	if strings.Count(text.String(), "answers again") != 1 {
		t.Fatal(text.String())
	}
}

func TestAMarkReplacesTheMetadataOfAGRPCClient(t *testing.T) {
	rules := "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}, " +
		"on_deny: {mark: {header: x-rate-limited, value: flood}}}]}"
	client := newClient(t, serve(t, rules).address)
	limits := Limits{Keys: []KeySource{Constant("user", "a")}}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-rate-limited", "none", "x-rate-limited", "other"))
	for _, expected := range []int{2, 1} {
		limited, _, err := client.limitCall(ctx, limits, "/service/method", func(metadata.MD) {})
		if err != nil {
			t.Fatal(err)
		}
		values := metadata.ValueFromIncomingContext(limited, "x-rate-limited")
		if len(values) != expected || expected == 1 && values[0] != "flood" {
			t.Fatal(values)
		}
	}
}

func TestAFakeClientReturnsTheDecisionsOfATest(t *testing.T) {
	decisions := []Decision{Admitted(), Denied(90 * time.Second), Failed(FailClosed, "DEADLINE_EXCEEDED")}
	var calls []Call
	client := NewFake(func(call Call) Decision {
		calls = append(calls, call)
		return decisions[len(calls)-1]
	})
	handler := client.Middleware(Limits{Keys: []KeySource{Constant("route", "all")}})(http.NotFoundHandler())
	for _, expected := range []int{http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest("GET", "/", nil))
		if response.Code != expected || expected == http.StatusTooManyRequests && response.Header().Get("Retry-After") != "90" {
			t.Fatalf("%d, %v", response.Code, response.Header())
		}
	}
	if entries := calls[0].Descriptors[0].Entries(); len(entries) != 1 || entries[0] != (Entry{"route", "all"}) || calls[0].Cost != 1 {
		t.Fatalf("%+v", calls)
	}
}

func TestTheServersOwnHeadersOfAKeptDenialAge(t *testing.T) {
	denied := Denied(90 * time.Second)
	denied.ResponseHeaders = []Header{{"retry-after", "90"}, {"RateLimit", `"a";r=0;t=90, "b";r=0`}, {"x-ratelimit-reset", "1"}, {"x-help", "90"}}
	headers := denied.after(2500 * time.Millisecond).LegacyHeaders()
	for name, expected := range map[string]string{
		"Retry-After": "88", "RateLimit": `"a";r=0;t=88, "b";r=0`, "X-RateLimit-Reset": "0", "X-Help": "90",
	} {
		if found := headers.Get(name); found != expected {
			t.Errorf("%s: %q is not %q", name, found, expected)
		}
	}
}

func TestTheTimeOfAResetDoesNotAge(t *testing.T) {
	for value, expected := range map[string]string{"1767225600": "1767225600", "60": "58"} {
		if found := (Header{"X-RateLimit-Reset", value}).after(2500 * time.Millisecond); found.Value != expected {
			t.Errorf("%q is not %q", found.Value, expected)
		}
	}
}

func TestASlotIsReleasedOnceAlsoAfterItsContextAndNoneWithoutATicket(t *testing.T) {
	var calls []Call
	decision := Admitted()
	client := NewFake(func(call Call) Decision {
		calls = append(calls, call)
		return decision
	})
	decision.Ticket = "slot-1"
	ctx, cancel := context.WithCancel(context.Background())
	slot, err := client.Acquire(ctx, Key("user", "ann"), InDomain("other"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	slot.ReleasePart(2)
	slot.Release()
	slot.Release()
	if len(calls) != 3 {
		t.Fatalf("%d calls", len(calls))
	}
	part, whole := calls[1], calls[2]
	named := []Entry{{"slot", "slot-1"}}
	if part.Domain != "other" || !part.GivesBack || !slices.Equal(part.Descriptors[0].Entries(), named) || whole.GivesBack {
		t.Fatalf("%+v", calls)
	}
	decision.TicketCost = 40
	type end struct {
		cost      uint64
		givesBack bool
	}
	for _, ends := range []struct {
		call     func(*Slot)
		expected end
	}{
		{(*Slot).Release, end{40, false}},
		{func(s *Slot) { s.Commit(7) }, end{7, false}},
		{func(s *Slot) { s.Commit(0) }, end{40, true}},
		{(*Slot).Cancel, end{40, true}},
	} {
		calls = nil
		slot, err := client.Acquire(context.Background(), Key("user", "ann"))
		if err != nil {
			t.Fatal(err)
		}
		ends.call(slot)
		slot.Commit(3)
		slot.Release()
		if len(calls) != 2 || (end{*calls[1].Descriptors[0].cost, calls[1].GivesBack}) != ends.expected {
			t.Fatalf("%+v is not %+v", calls, ends.expected)
		}
	}
	for _, decision = range []Decision{Denied(time.Second), Failed(FailOpen, "UNAVAILABLE"), Admitted()} {
		calls = nil
		slot, err := client.Acquire(context.Background(), Key("user", "ann"))
		if err != nil || slot.Allowed != decision.Allowed {
			t.Fatalf("%+v, %v", slot, err)
		}
		slot.Release()
		if len(calls) != 1 {
			t.Fatalf("%d calls after %+v", len(calls), decision)
		}
	}
	var none *Slot
	none.Release()
	none.Commit(1)
}

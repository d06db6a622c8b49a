package tidegate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

const localRules = `
domain: d
descriptors:
  - key: bucket
    rate_limit: {name: bucket, per: 7s, requests_per_unit: 5, algorithm: token_bucket}
  - key: window
    rate_limit: {name: window, per: 10s, requests_per_unit: 4, algorithm: fixed_window}
`

func TestACountingFakeDecidesAsTheServerDoes(t *testing.T) {
	for seed := range uint64(3) {
		chance := rand.New(rand.NewPCG(seed, 0))
		address := serve(t, localRules, "--test-clock").address
		setServerClock := setClock(t, address)
		client := newClient(t, address, WithLocalDenials(0))
		now := int64(1_700_006_400_000_000_000)
		fake := NewFake(Counting(func() time.Time { return time.Unix(0, now) },
			LocalLimit{Keys: []string{"bucket"}, Requests: 5, Per: 7 * time.Second, Name: "bucket"},
			LocalLimit{Keys: []string{"window"}, Requests: 4, Per: 10 * time.Second, FixedWindow: true, Name: "window"}))
		for step := range 150 {
			now += []int64{0, 1, 333_333_333, 1_400_000_000, 2_999_999_999, 12_000_000_000}[chance.IntN(6)]
			setServerClock(now)
			options := [][]CallOption{
				{Key("bucket", "a")}, {Key("window", "a")}, {Key("bucket", "b"), Key("window", "b")}, {Key("none", "a")},
			}[chance.IntN(4)]
			options = append(options, Cost([]uint64{1, 1, 2, 3, 6}[chance.IntN(5)]))
			operation := chance.IntN(6)
			decide := func(of *Client) string {
				call := of.Allow
				switch operation {
				case 0:
					call = of.Peek
					options = options[:len(options)-1]
					options = append(options, Cost(0))
				case 1:
					call = of.GiveBack
				}
				decision, err := call(context.Background(), options...)
				if err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprintf("%v %v", decision.Allowed, decision.RetryAfter)
				for _, status := range decision.Statuses {
					name := ""
					if status.Limit != nil {
						name = status.Limit.Name
					}
					text += fmt.Sprintf(" %s %v %d", name, status.OverLimit, status.Remaining)
					if operation != 1 {
						text += fmt.Sprintf(" %d", status.ResetAfter)
					}
				}
				return text
			}
			if real, local := decide(client), decide(fake); real != local {
				t.Fatalf("seed %d, step %d, operation %d: the server %s, the fake %s", seed, step, operation, real, local)
			}
		}
	}
}

func TestAFallbackLimitsRequestsWithoutAnAnswer(t *testing.T) {
	client := newClient(t, misbehaving(t, "refused"), WithFallback(LocalLimit{Keys: []string{"user"}, Requests: 2, Per: time.Hour}))
	handler := client.Middleware(Limits{Keys: []KeySource{Constant("user", "a")}})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, expected := range []int{200, 200, 429} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/", nil))
		if response.Code != expected {
			t.Fatalf("status %d, expected %d", response.Code, expected)
		}
	}
	denied, err := client.Allow(context.Background(), Key("user", "a"))
	if err != nil || denied.Reason != FailedClosed || denied.Failure == "" || denied.RetryAfter == Never {
		t.Fatalf("%+v %v", denied, err)
	}
	other, err := client.Allow(context.Background(), Key("team", "a"))
	if err != nil || !other.Allowed || other.Limited {
		t.Fatalf("%+v %v", other, err)
	}
	if _, err := New("127.0.0.1:1", WithFallback(LocalLimit{Keys: []string{"user"}})); err == nil {
		t.Fatal("a limit without requests is no error")
	}
}

func TestAFallbackCountsByTheClientsMonotonicClock(t *testing.T) {
	now := time.Hour
	client := newClient(t, misbehaving(t, "refused"), func(s *settings) { s.now = func() time.Duration { return now } },
		WithFallback(LocalLimit{Keys: []string{"user"}, Requests: 1, Per: time.Hour, FixedWindow: true}))
	for i, step := range []time.Duration{0, 0, time.Hour} {
		now += step
		decision, err := client.Allow(context.Background(), Key("user", "a"))
		if err != nil || decision.Allowed != (i != 1) {
			t.Fatalf("call %d: %+v %v", i, decision, err)
		}
	}
}

func TestAClockThatStepsBackLiftsNoLocalLimit(t *testing.T) {
	for _, isWindow := range []bool{true, false} {
		now := time.Unix(7200, 0)
		client := NewFake(Counting(func() time.Time { return now },
			LocalLimit{Keys: []string{"user"}, Requests: 1, Per: time.Hour, FixedWindow: isWindow}))
		for i, step := range []time.Duration{0, -time.Second, -time.Hour, time.Hour} {
			now = now.Add(step)
			decision, err := client.Allow(context.Background(), Key("user", "a"))
			if err != nil || decision.Allowed != (i == 0) {
				t.Fatalf("window %t, call %d: %+v %v", isWindow, i, decision, err)
			}
		}
	}
}

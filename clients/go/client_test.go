package tidegate

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

const (
	hundred = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}"
	fast    = "{domain: d, descriptors: [{key: user, rate_limit: {per: 200ms, requests_per_unit: 2, algorithm: token_bucket}}]}"
)

func allow(t *testing.T, client *Client, options ...CallOption) Decision {
	t.Helper()
	decision, err := client.Allow(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return decision
}

func TestAThousandGoroutinesAdmitExactlyTheLimit(t *testing.T) {
	client := newClient(t, serve(t, hundred).address, WithTimeout(20*time.Second))
	var admitted, answered atomic.Int64
	var callers sync.WaitGroup
	for range 1000 {
		callers.Go(func() {
			decision, err := client.Allow(context.Background(), Key("user", "a"))
			if err == nil && (decision.Reason == Decided || decision.Reason == DeniedLocally) {
				answered.Add(1)
			}
			if decision.Allowed {
				admitted.Add(1)
			}
		})
	}
	callers.Wait()
	if admitted.Load() != 100 || answered.Load() != 1000 {
		t.Fatalf("%d of %d", admitted.Load(), answered.Load())
	}
}

func TestEachCallIsAnsweredWhileTheServerIsRestarted(t *testing.T) {
	first := serve(t, hundred)
	client := newClient(t, first.address, WithTimeout(500*time.Millisecond), WithPolicy(FailClosed),
		WithBreaker(5, 100*time.Millisecond), WithLocalDenials(0))
	seen := map[Reason]int{}
	until := func(reason Reason) {
		t.Helper()
		deadline := time.Now().Add(15 * time.Second)
		for {
			decision := allow(t, client, Key("user", "a"))
			seen[decision.Reason]++
			if decision.Reason == FailedClosed && (decision.Allowed || decision.Failure == "") {
				t.Fatalf("%+v", decision)
			}
			if decision.Reason == reason {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no decision is %s: %v", reason, seen)
			}
			time.Sleep(time.Millisecond)
		}
	}
	until(Decided)
	first.kill()
	until(FailedClosed)
	serveOn(t, first.address, hundred)
	until(Decided)
	if len(seen) != 2 {
		t.Fatal(seen)
	}
}

func TestWaitingEndsWhenTheHitsFitOrAtOnceIfTheyCannot(t *testing.T) {
	client := newClient(t, serve(t, fast).address)
	started := time.Now()
	if !allow(t, client, Key("user", "a"), Cost(2)).Allowed {
		t.Fatal("the bucket is not full")
	}
	for _, c := range []struct {
		user      string
		hits      uint64
		waitMax   time.Duration
		isAllowed bool
	}{{"a", 2, 5 * time.Second, true}, {"a", 2, 50 * time.Millisecond, false}, {"b", 3, 5 * time.Second, false}} {
		decision, err := client.Wait(t.Context(), c.waitMax, Key("user", c.user), Cost(c.hits))
		elapsed := time.Since(started)
		if err != nil || decision.Allowed != c.isAllowed || c.isAllowed && elapsed < 200*time.Millisecond || elapsed > 4*time.Second {
			t.Fatalf("%+v: %+v after %s, %v", c, decision, elapsed, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := client.Wait(ctx, 5*time.Second, Key("user", "a"), Cost(2)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestAUnixSocketAndSeveralAddresses(t *testing.T) {
	path := "unix:" + filepath.Join(t.TempDir(), "t.sock")
	serveOn(t, path, hundred)
	if decision := allow(t, newClient(t, path), Key("user", "a")); decision.Remaining != 99 {
		t.Fatal(decision)
	}
	one, other := serve(t, hundred), serve(t, hundred)
	client := newClient(t, one.address, WithAddresses(other.address), WithLocalDenials(0))
	left := map[uint32]int{}
	// The second connection may take a moment.
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		remaining := allow(t, client, Key("user", "a")).Remaining
		if left[remaining]++; left[remaining] == 2 {
			return
		}
	}
	t.Fatal("one server counted all calls")
}

func TestErrorsOfTheCallerAreReturnedAndNeverFailOpen(t *testing.T) {
	client := newClient(t, serve(t, hundred).address)
	long := make([]byte, 2_000_000)
	for i := range long {
		long[i] = 'x'
	}
	var refused *RequestError
	_, err := client.Allow(t.Context(), Key("user", string(long)))
	if !errors.As(err, &refused) || refused.Code != codes.OutOfRange {
		t.Fatal(err)
	}
	for _, options := range [][]CallOption{{}, {Descriptor{}}, {Key("a", "b"), InDomain("")}, {Key("a", "b").Limit(1, "fortnight")}} {
		if decision, err := client.Allow(t.Context(), options...); err == nil {
			t.Fatalf("%v: %+v", options, decision)
		}
	}
}

func TestACancelledCallIsNoFailure(t *testing.T) {
	client := newClient(t, misbehaving(t, "slow=60s"), WithTimeout(30*time.Second), WithBreaker(1, time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.Allow(ctx, Key("user", "a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	client.breakers.Range(func(address, found any) bool {
		if found.(*breaker).isOpen.Load() || found.(*breaker).failures.Load() != 0 {
			t.Fatal("the call counts as a failure")
		}
		return true
	})
}

func TestObserversSeeEachDecision(t *testing.T) {
	var seen []Reason
	observer := WithObserver(func(_ context.Context, decision Decision, taken time.Duration) {
		if taken < 0 || taken > 5*time.Second {
			t.Errorf("%s", taken)
		}
		seen = append(seen, decision.Reason)
	})
	client := newClient(t, serve(t, hundred).address, observer)
	allow(t, client, Key("user", "a"), Cost(100))
	allow(t, client, Key("user", "a"))
	allow(t, client, Key("user", "a"))
	allow(t, newClient(t, unused(t), observer), Key("user", "a"))
	expected := []Reason{Decided, Decided, DeniedLocally, FailedOpen}
	for i, reason := range expected {
		if seen[i] != reason {
			t.Fatal(seen)
		}
	}
}

// BenchmarkLocalDenial measures a denial without a call; its target is 2 µs.
func BenchmarkLocalDenial(b *testing.B) {
	client := newClient(b, serve(b, "{domain: d, descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 1}}]}").address)
	ctx := b.Context()
	for range 2 {
		if _, err := client.Allow(ctx, Key("user", "a")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if decision, _ := client.Allow(ctx, Key("user", "a")); decision.Reason != DeniedLocally {
			b.Fatal(decision)
		}
	}
}

// BenchmarkAllow measures a decision by the server, beside the bare stub.
func BenchmarkAllow(b *testing.B) {
	client := newClient(b, serve(b, hundred).address, WithLocalDenials(0))
	ctx := b.Context()
	b.Run("client", func(b *testing.B) {
		for b.Loop() {
			if _, err := client.Allow(ctx, Key("user", "a")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stub", func(b *testing.B) {
		r := client.request(1, []CallOption{Key("user", "a")})
		message := r.message()
		for b.Loop() {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			if _, err := client.stub.ShouldRateLimit(ctx, message); err != nil {
				b.Fatal(err)
			}
			cancel()
		}
	})
}

func TestANameWithoutAddressesIsNamed(t *testing.T) {
	names := manual.NewBuilderWithScheme("names")
	names.BuildCallback = func(_ resolver.Target, connection resolver.ClientConn, _ resolver.BuildOptions) {
		// The round-robin policy is in use after the first state, and replaces the errors that follow.
		_ = connection.UpdateState(resolver.State{})
		connection.ReportError(errors.New("no such host"))
	}
	client := newClient(t, "names:///nowhere:8081", WithDialOptions(grpc.WithResolvers(names)))
	decision := allow(t, client, Key("user", "a"))
	if decision.Failure != "UNAVAILABLE" || !strings.Contains(decision.FailureMessage, "nowhere:8081") {
		t.Fatalf("%+v", decision)
	}
}

func TestWaitingAsLongAsItTakesEndsWithAnAdmission(t *testing.T) {
	decisions := []Decision{Denied(0), Admitted()}
	client := NewFake(func(Call) Decision {
		decision := decisions[0]
		decisions = decisions[1:]
		return decision
	}, func(s *settings) { s.now = func() time.Duration { return time.Hour } })
	if decision, err := client.Wait(t.Context(), math.MaxInt64, Key("user", "a")); err != nil || !decision.Allowed {
		t.Fatalf("%+v %v", decision, err)
	}
}

func TestABreakerMayStayOpenForEver(t *testing.T) {
	b := breaker{failuresMax: 1, openFor: math.MaxInt64}
	b.failed(b.enter(time.Hour), time.Hour, time.Hour, false)
	if b.enter(time.Hour) != permitNone {
		t.Fatal("it is closed")
	}
}

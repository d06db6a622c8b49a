package tidegate

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestOneFrozenServerOfTwoFailsAtMostFiveDecisions(t *testing.T) {
	frozen, other := serve(t, hundred), serve(t, hundred)
	client := newClient(t, frozen.address, WithAddresses(other.address), WithLocalDenials(0),
		WithTimeout(time.Second), WithBreaker(5, 50*time.Millisecond))
	// Calls go to both.
	useBoth := func() {
		t.Helper()
		left := map[uint32]int{}
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if decision := allow(t, client, Key("user", "both")); decision.Reason == Decided {
				if left[decision.Remaining]++; left[decision.Remaining] == 2 {
					return
				}
			}
		}
		t.Fatal("one server counted all calls")
	}
	useBoth()
	if err := frozen.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	failures, firstAt, lastAt := 0, time.Time{}, time.Time{}
	// Long enough for several probes, each of which takes a deadline.
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		if decision := allow(t, client, Key("user", time.Now().String())); decision.Reason != Decided {
			failures++
			if lastAt = time.Now(); firstAt.IsZero() {
				firstAt = lastAt
			}
		}
	}
	// The breaker's failures, and one for a call that a loaded machine delays.
	if failures < 1 || failures > 6 || lastAt.Sub(firstAt) > 2*time.Second {
		t.Fatalf("%d decisions failed over %s", failures, lastAt.Sub(firstAt))
	}
	if err := frozen.process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for deadline := time.Now().Add(20 * time.Second); ; {
		if time.Now().After(deadline) {
			t.Fatal("the server that runs again is not used")
		}
		if decision := allow(t, client, Key("user", "again")); seen[decision.Remaining] && decision.Reason == Decided {
			return
		} else if decision.Reason == Decided {
			seen[decision.Remaining] = true
		}
	}
}

func TestConcurrentFailuresOfOneStallAreOne(t *testing.T) {
	client := newClient(t, misbehaving(t, "slow=60s"), WithTimeout(300*time.Millisecond))
	// Connects.
	allow(t, client, Key("user", "a"))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if decision, err := client.Allow(t.Context(), Key("user", "a")); err != nil || decision.Failure != "DEADLINE_EXCEEDED" {
				t.Errorf("%+v, %v", decision, err)
			}
		})
	}
	callers.Wait()
	if decision := allow(t, client, Key("user", "a")); decision.Failure != "DEADLINE_EXCEEDED" {
		t.Fatalf("the breaker is open: %+v", decision)
	}
}

func TestEachAddressIsVerifiedByItsOwnName(t *testing.T) {
	trusted := newAuthority(t)
	var addresses []string
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		certificate, key := trusted.issueFor(t, net.ParseIP(ip))
		folder := t.TempDir()
		for name, text := range map[string][]byte{"cert": certificate, "key": key} {
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		server := serveOn(t, ip+":0", hundred, "--tls-cert", filepath.Join(folder, "cert"), "--tls-key", filepath.Join(folder, "key"))
		addresses = append(addresses, server.address)
	}
	client := newClient(t, addresses[0], WithAddresses(addresses[1]), WithTLS(trusted.credentials(t, nil)), WithLocalDenials(0))
	seen := map[uint32]bool{}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		decision := allow(t, client, Key("user", "a"))
		if decision.Reason != Decided {
			t.Fatalf("%+v", decision)
		}
		if seen[decision.Remaining] {
			return
		}
		seen[decision.Remaining] = true
	}
	t.Fatal("one server counted all calls")
}

func TestAnAddressWithoutAPortIsRefused(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "localhost", "[::1]", "::1", "localhost:"} {
		for _, create := range []func() (*Client, error){
			func() (*Client, error) { return New(address) },
			func() (*Client, error) { return New("127.0.0.1:1", WithAddresses(address)) },
		} {
			if _, err := create(); err == nil || !strings.Contains(err.Error(), "write host:port") {
				t.Errorf("%s: %v", address, err)
			}
		}
	}
	for _, address := range []string{"127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/a", "dns:///name:1", "dns:name:1"} {
		newClient(t, address)
	}
}

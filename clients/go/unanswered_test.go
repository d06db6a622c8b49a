package tidegate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

const manyRules = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}"

// proxy returns the address of a proxy that answers each request over HTTP/2 with a status.
func proxy(t *testing.T, httpStatus int) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(httpStatus) }))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols = protocols
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// endingWith returns the address of a gRPC server whose methods end with a code.
func endingWith(t *testing.T, code codes.Code) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(code, "of the test") }))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func TestFailingOpenCoversEveryStatusWithoutADecision(t *testing.T) {
	for _, c := range []struct {
		name    string
		address string
		failure string
	}{
		{"404", proxy(t, 404), "UNIMPLEMENTED"},
		{"401", proxy(t, 401), "UNAUTHENTICATED"},
		{"403", proxy(t, 403), "PERMISSION_DENIED"},
		{"unimplemented", endingWith(t, codes.Unimplemented), "UNIMPLEMENTED"},
		{"unauthenticated", endingWith(t, codes.Unauthenticated), "UNAUTHENTICATED"},
		{"permission denied", endingWith(t, codes.PermissionDenied), "PERMISSION_DENIED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen []string
			var log bytes.Buffer
			client := newClient(t, c.address, WithBreaker(0, 0), WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
				WithObserver(func(_ context.Context, decision Decision, _ time.Duration) { seen = append(seen, decision.Failure) }))
			application := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
			limited := client.Middleware(Limits{Keys: []KeySource{Constant("user", "a")}})(application)
			for range 3 {
				response := httptest.NewRecorder()
				limited.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/", nil))
				if response.Code != http.StatusOK {
					t.Fatalf("status %d", response.Code)
				}
			}
			if len(seen) != 3 || seen[0] != c.failure || strings.Count(log.String(), c.failure) != 1 {
				t.Fatalf("seen %v, logged %q", seen, log.String())
			}
			closed, err := client.Allow(context.Background(), Key("user", "a"), OnFailure(FailClosed))
			if err != nil || closed.Reason != FailedClosed {
				t.Fatalf("%v %v", closed, err)
			}
		})
	}
}

func TestARequestThatTheServerRefusesIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	client := newClient(t, serve(t, manyRules).address, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	for range 2 {
		if _, err := client.Allow(context.Background(), Key("user", strings.Repeat("x", 2_000_000))); err == nil {
			t.Fatal("an overlong key is no error")
		}
	}
	if strings.Count(log.String(), "refuses a request") != 1 {
		t.Fatal(log.String())
	}
}

// dead makes an address dead: nothing listens, its kernel drops each SYN, or it accepts and stays silent.
func dead(t *testing.T, kind, address string) {
	t.Helper()
	if kind == "refuses" {
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Closed when its file is.
	file := os.NewFile(uintptr(socket), "listener")
	t.Cleanup(func() { _ = file.Close() })
	bound := &syscall.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4())}
	_, _ = fmt.Sscan(port, &bound.Port)
	backlog := map[string]int{"swallows": 0, "hangs": 128}[kind]
	if err := syscall.Bind(socket, bound); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(socket, backlog); err != nil {
		t.Fatal(err)
	}
	// Fill the queue with connections that are never accepted.
	for kind == "swallows" {
		connection, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
}

func TestADeadAddressOfANameCostsAtMostTwoSeconds(t *testing.T) {
	for _, kind := range []string{"refuses", "swallows", "hangs"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			_, port, _ := net.SplitHostPort(serve(t, manyRules).address)
			addresses := []string{"127.0.0.2:" + port, "127.0.0.1:" + port}
			dead(t, kind, addresses[0])
			names := manual.NewBuilderWithScheme("names")
			names.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: addresses[0]}, {Addr: addresses[1]}}})
			client := newClient(t, "names:///limits.example", WithTimeout(500*time.Millisecond), WithLocalDenials(0),
				WithDialOptions(grpc.WithResolvers(names)))
			calls, failures := 0, 0
			for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(5 * time.Millisecond) {
				decision, err := client.Allow(context.Background(), Key("user", "a"))
				if err != nil {
					t.Fatal(err)
				}
				if time.Since(began) > 2*time.Second {
					calls++
					if decision.Failure != "" {
						failures++
					}
				}
			}
			// A loaded machine exceeds the timeout now and then. The dead address would cost half of the calls.
			if failures*10 > calls {
				t.Fatalf("%d of %d calls failed", failures, calls)
			}
		})
	}
}

// hanging is a client of two servers, and the times of its undecided calls.
type hanging struct {
	name      string
	client    *Client
	every     time.Duration
	undecided []time.Time
}

// useBoth calls until both servers have counted.
func (h *hanging) useBoth() error {
	seen := map[uint32]bool{}
	for range 2_000 {
		decision, err := h.client.Allow(context.Background(), Key("user", h.name))
		if err != nil {
			return err
		}
		if seen[decision.Remaining] {
			return nil
		}
		seen[decision.Remaining] = true
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("one server counted all calls of %s", h.name)
}

func (h *hanging) call() error {
	until := time.Now().Add(4 * time.Second)
	for sent := time.Now(); sent.Before(until); sent = time.Now() {
		decision, err := h.client.Allow(context.Background(), Key("user", h.name))
		if err != nil {
			return err
		}
		if decision.Failure != "" {
			h.undecided = append(h.undecided, time.Now())
		}
		time.Sleep(h.every - time.Since(sent))
	}
	return nil
}

func TestAServerThatHangsBesideAnotherCostsAtMostTwoSeconds(t *testing.T) {
	other := serve(t, manyRules)
	_, port, _ := net.SplitHostPort(other.address)
	hung := serveOn(t, "127.0.0.2:"+port, manyRules)
	var runs []*hanging
	for _, every := range []time.Duration{5 * time.Millisecond, time.Second} {
		// The timeout is for loaded machines.
		options := []Option{WithTimeout(time.Second), WithLocalDenials(0)}
		names := manual.NewBuilderWithScheme("names")
		names.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: hung.address}, {Addr: other.address}}})
		ofName := newClient(t, "names:///limits.example", append(options, WithDialOptions(grpc.WithResolvers(names)))...)
		ofList := newClient(t, hung.address, append(options, WithAddresses(other.address))...)
		runs = append(runs, &hanging{name: "name " + every.String(), client: ofName, every: every},
			&hanging{name: "list " + every.String(), client: ofList, every: every})
	}
	atOnce := func(action func(*hanging) error) {
		t.Helper()
		var running sync.WaitGroup
		for _, run := range runs {
			running.Go(func() {
				if err := action(run); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	atOnce((*hanging).useBoth)
	if err := hung.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	atOnce((*hanging).call)
	for _, run := range runs {
		if count := len(run.undecided); count == 0 || run.undecided[count-1].Sub(run.undecided[0]) >= 2*time.Second {
			t.Errorf("%s: %v", run.name, run.undecided)
		}
	}
}

func TestACallThatIsCancelledAtAnyMomentKeepsNoSlot(t *testing.T) {
	client := newClient(t, serve(t, "{domain: d, descriptors: [{key: user, rate_limit: "+
		"{algorithm: concurrency, requests_in_flight: 1000, max_hold: 1h}}]}").address)
	if _, err := client.Peek(context.Background(), Key("user", "a")); err != nil {
		t.Fatal(err)
	}
	cancelled := 0
	for number := range 300 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(number)*2*time.Microsecond)
		slot, err := client.Acquire(ctx, Key("user", "a"))
		if err != nil {
			cancelled++
		}
		slot.Release()
		cancel()
	}
	if cancelled == 0 {
		t.Fatal("no call was cancelled")
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if decision, err := client.Peek(context.Background(), Key("user", "a")); err == nil && decision.Remaining == 1000 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("slots stay held")
		}
	}
}

func TestTwoMiddlewaresOnOneRequestListTheLimitsOfBoth(t *testing.T) {
	client := newClient(t, serve(t, "{domain: d, descriptors: [{key: outer, rate_limit: {name: outer, unit: hour, requests_per_unit: 8}}, "+
		"{key: inner, rate_limit: {name: inner, unit: hour, requests_per_unit: 1}}]}").address)
	limited := func(entry string) func(http.Handler) http.Handler {
		return client.Middleware(Limits{Keys: []KeySource{Constant(entry, "a")}})
	}
	handler := limited("outer")(limited("inner")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, expected := range []struct {
		status int
		limits string
	}{{200, `"outer";r=7, "inner";r=0`}, {429, `"outer";r=6, "inner";r=0;t=`}} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/", nil))
		if response.Code != expected.status || !strings.HasPrefix(response.Header().Get("RateLimit"), expected.limits) {
			t.Fatalf("%d %v", response.Code, response.Header())
		}
	}
}

func TestAnApplicationMakesTheBodiesOfItsDenials(t *testing.T) {
	client := NewFake(func(Call) Decision { return Denied(5 * time.Second) })
	limits := Limits{Keys: []KeySource{Constant("route", "all")}, DeniedBody: func(decision Decision, request Request) (string, []byte) {
		return "application/json", fmt.Appendf(nil, `{"path":%q,"wait":%v}`, request.Path, decision.RetryAfter.Seconds())
	}}
	response := httptest.NewRecorder()
	client.Middleware(limits)(http.NotFoundHandler()).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/a", nil))
	if response.Code != 429 || response.Header().Get("Content-Type") != "application/json" || response.Body.String() != `{"path":"/a","wait":5}` {
		t.Fatalf("%v %s", response.Header(), response.Body)
	}
}

func TestRequestsThatDoNotCountGiveTheirHitsBack(t *testing.T) {
	var takes, givesBack atomic.Int32
	var pending sync.WaitGroup
	client := NewFake(func(call Call) Decision {
		if call.GivesBack {
			givesBack.Add(1)
			pending.Done()
		} else {
			takes.Add(1)
		}
		return Admitted()
	})
	var statuses []int
	limits := Limits{Keys: []KeySource{Constant("route", "login")}, Counts: func(status int) bool {
		statuses = append(statuses, status)
		return status == 401 || status == 500
	}}
	handler := client.Middleware(limits)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		switch status {
		case 0:
		case 500:
			panic("of the handler")
		default:
			w.WriteHeader(status)
		}
	}))
	pending.Add(3)
	for _, status := range []int{401, 200, 302, 401, 500, 0} {
		func() {
			defer func() { _ = recover() }()
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprintf("/%d", status), nil))
		}()
	}
	pending.Wait()
	if takes.Load() != 6 || givesBack.Load() != 3 {
		t.Fatalf("%d takes, %d give-backs", takes.Load(), givesBack.Load())
	}
	if want := []int{401, 200, 302, 401, 500, 200}; !slices.Equal(statuses, want) {
		t.Fatalf("%v instead of %v", statuses, want)
	}
}

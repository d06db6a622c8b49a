package tidegate

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const five = "{domain: demo, descriptors: [{key: api_key, rate_limit: {name: demo, unit: hour, requests_per_unit: 5, algorithm: token_bucket}}]}"

// sample starts a sample as a process of its own, and returns its address.
func sample(t *testing.T, name, tidegate string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if output, err := exec.Command("go", "build", "-o", path, "./samples/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%s", output)
	}
	address := unused(t)
	process := exec.Command(path, address)
	process.Env = append(os.Environ(), "TIDEGATE_ADDR="+tidegate)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	for range 200 {
		if connection, err := net.Dial("tcp", address); err == nil {
			_ = connection.Close()
			return address
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the sample does not listen")
	return ""
}

// get sends a request with curl.
func get(t *testing.T, address, key string) *http.Response {
	t.Helper()
	arguments := []string{"--silent", "--include", "http://" + address}
	if key != "" {
		arguments = append(arguments, "--header", "X-Api-Key: "+key)
	}
	printed, err := exec.CommandContext(t.Context(), "curl", arguments...).Output()
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(printed)), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response
}

func checkRetryAfter(t *testing.T, value string) {
	t.Helper()
	if seconds, err := strconv.Atoi(value); err != nil || seconds < 715 || seconds > 720 {
		t.Fatalf("Retry-After: %q", value)
	}
}

func TestSamplesStartWithoutTheAddressOfAServer(t *testing.T) {
	for _, name := range []string{"http", "grpc"} {
		sample(t, name, "")
	}
}

func TestFiveRequestsPassAndTheSixthIsDenied(t *testing.T) {
	address := sample(t, "http", serve(t, five).address)
	for remaining := 4; remaining >= 0; remaining-- {
		response := get(t, address, "alice")
		expected := `"demo";r=` + strconv.Itoa(remaining)
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("RateLimit"), expected) {
			t.Fatalf("%s: %v", response.Status, response.Header)
		}
	}
	for range 2 {
		response := get(t, address, "alice")
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("RateLimit-Policy") != `"demo";q=5;w=3600` {
			t.Fatalf("%s: %v", response.Status, response.Header)
		}
		checkRetryAfter(t, response.Header.Get("Retry-After"))
	}
	if response := get(t, address, "bob"); response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	if response := get(t, address, ""); response.StatusCode != http.StatusBadRequest {
		t.Fatal(response.Status)
	}
}

func TestFiveCallsPassAndTheSixthIsDenied(t *testing.T) {
	address := sample(t, "grpc", serve(t, five).address)
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	health := healthpb.NewHealthClient(connection)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "alice")
	for range 4 {
		if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(ctx context.Context) (metadata.MD, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := health.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			return nil, err
		}
		_, err = stream.Recv()
		if err == nil {
			return nil, nil
		}
		return stream.Trailer(), err
	}
	if _, err := watch(ctx); err != nil {
		t.Fatal(err)
	}
	var trailer metadata.MD
	_, err = health.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	checkRetryAfter(t, trailer.Get("retry-after")[0])
	trailer, err = watch(ctx)
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	checkRetryAfter(t, trailer.Get("retry-after")[0])
	if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Fatal(err)
	}
}

func TestWithoutAnAnswerThePolicyDecides(t *testing.T) {
	for policy, expected := range map[Policy]int{FailOpen: http.StatusOK, FailClosed: http.StatusServiceUnavailable} {
		client := newClient(t, unused(t), WithPolicy(policy))
		limit := client.Middleware(Limits{Keys: []KeySource{Constant("route", "all")}})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := http.Server{Handler: limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(listener) }()
		if response := get(t, listener.Addr().String(), ""); response.StatusCode != expected {
			t.Fatal(response.Status)
		}
		_ = server.Close()
	}
}

func TestKeysDecideAboutRequestsWithoutTheValue(t *testing.T) {
	r := Request{Header: func(string) []string { return nil }}
	if _, err := descriptorOf([]KeySource{HeaderKey("k", "x", Allow)}, r); err != errSkipped {
		t.Fatal(err)
	}
	if shared, err := descriptorOf([]KeySource{HeaderKey("k", "x", Shared)}, r); err != nil || shared.entries[0] != (Entry{"k", ""}) {
		t.Fatal(shared, err)
	}
	for _, keys := range [][]KeySource{nil, {HeaderKey("k", "x", 0)}, {Constant("", "x")}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Fatalf("%v is accepted", keys)
				}
			}()
			newClient(t, "127.0.0.1:1").Middleware(Limits{Keys: keys})
		}()
	}
}

func TestAKeyOfTheHostReadsItOverHTTPAndGRPC(t *testing.T) {
	keys := []KeySource{HeaderKey("host", "host", Reject)}
	r := httptest.NewRequest(http.MethodGet, "http://app.example:8080/", nil)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(":authority", "app.example:8080"))
	for _, request := range []Request{ofHTTP(r), ofGRPC(ctx, "/a/b")} {
		found, err := descriptorOf(keys, request)
		if err != nil || found.entries[0] != (Entry{"host", "app.example:8080"}) {
			t.Fatal(found, err)
		}
	}
}

func TestAForwardedAddressWithoutProxiesIsRefused(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("it is accepted")
		}
	}()
	ForwardedAddressKey("address", 0, Allow)
}

// fakeFlight returns a client whose decisions have a ticket, and a channel of the releases that it gets.
func fakeFlight() (*Client, <-chan struct{}) {
	releases := make(chan struct{}, 10)
	return NewFake(func(call Call) Decision {
		decision := Admitted()
		if call.Descriptors[0].entries[0].Key == "slot" {
			releases <- struct{}{}
			return decision
		}
		decision.Ticket = "slot-1"
		return decision
	}), releases
}

func expectRelease(t *testing.T, releases <-chan struct{}) {
	t.Helper()
	select {
	case <-releases:
	case <-time.After(10 * time.Second):
		t.Fatal("no slot is released")
	}
}

func TestMiddlewareReleasesTheSlotsOfARequestWhoseHandlerPanics(t *testing.T) {
	client, releases := fakeFlight()
	handler := client.Middleware(Limits{Keys: []KeySource{Constant("route", "all")}})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if len(releases) > 0 {
				t.Error("released before the end")
			}
			panic("of the handler")
		}))
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	expectRelease(t, releases)
}

func TestInterceptorsReleaseTheSlotsOfACallThatIsCancelled(t *testing.T) {
	client, releases := fakeFlight()
	ctx, cancel := context.WithCancel(t.Context())
	intercept := client.UnaryServerInterceptor(Limits{Keys: []KeySource{Constant("route", "all")}})
	_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) {
		cancel()
		return nil, ctx.Err()
	})
	if err == nil {
		t.Fatal("the error of the handler is lost")
	}
	expectRelease(t, releases)
}

// leaving is the context of a client that leaves at the moment of the decision: by then nothing waits for its end any more.
type leaving struct {
	context.Context
	hasLeft atomic.Bool
}

func (l *leaving) Done() <-chan struct{} { return nil }

func (l *leaving) Err() error {
	if l.hasLeft.Load() {
		return context.Canceled
	}
	return nil
}

func TestTheSlotsOfAClientThatLeavesAtTheMomentOfTheDecisionAreReleased(t *testing.T) {
	limits := Limits{Keys: []KeySource{Constant("route", "all")}}
	for name, serve := range map[string]func(*Client, context.Context){
		"http": func(client *Client, ctx context.Context) {
			handler := client.Middleware(limits)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("handled") }))
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		},
		"grpc": func(client *Client, ctx context.Context) {
			intercept := client.UnaryServerInterceptor(limits)
			_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) {
				t.Error("handled")
				return nil, nil
			})
			if status.Code(err) != codes.Canceled {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &leaving{Context: t.Context()}
			releases := make(chan struct{}, 1)
			client := NewFake(func(call Call) Decision {
				decision := Admitted()
				if call.Descriptors[0].entries[0].Key == "slot" {
					releases <- struct{}{}
				} else {
					ctx.hasLeft.Store(true)
					decision.Ticket = "slot-1"
				}
				return decision
			})
			serve(client, ctx)
			expectRelease(t, releases)
		})
	}
}

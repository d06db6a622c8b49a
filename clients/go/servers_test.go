package tidegate

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const repository = "../.."

// server is a `tidegate` process that listens on a free port of loopback.
type server struct {
	address string
	process *exec.Cmd
}

func program() string {
	if path := os.Getenv("TIDEGATE_BIN"); path != "" {
		return path
	}
	return filepath.Join(repository, "target/debug/tidegate")
}

// start starts a program that logs its address as JSON, once it serves.
func start(t testing.TB, program string, arguments ...string) *server {
	t.Helper()
	process := exec.Command(program, arguments...)
	stderr, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatalf("%v; build it with `cargo build --workspace --bins`, or set TIDEGATE_BIN", err)
	}
	started := &server{process: process}
	t.Cleanup(started.kill)
	lines := bufio.NewScanner(stderr)
	var log strings.Builder
	for lines.Scan() {
		var event struct{ Message, Address string }
		log.WriteString(lines.Text() + "\n")
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		switch event.Message {
		case "listening":
			started.address = event.Address
		case "serving":
			go func() {
				for lines.Scan() {
					continue
				}
			}()
			return started
		}
	}
	t.Fatalf("the server does not serve: %s", log.String())
	return nil
}

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// serve starts `tidegate serve` with rules.
func serve(t testing.TB, rules string, arguments ...string) *server {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", rules, arguments...)
}

func serveOn(t testing.TB, listen, rules string, arguments ...string) *server {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--rules", path, "--listen", listen, "--log-format", "json"}
	return start(t, program(), append(serve, arguments...)...)
}

// misbehaving returns the address of a server with a fault.
func misbehaving(t testing.TB, fault string) string {
	t.Helper()
	if fault == "refused" {
		return unused(t)
	}
	return start(t, filepath.Join(filepath.Dir(program()), "faulty-server"), fault).address
}

// unused returns an address on which nothing listens.
func unused(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func newClient(t testing.TB, address string, options ...Option) *Client {
	t.Helper()
	client, err := New(address, append([]Option{Domain("d"), WithTimeout(5 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// setClock returns a function that sets the clock of a server with --test-clock, to nanoseconds of the Unix epoch.
func setClock(t testing.TB, address string) func(int64) {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return func(unixNanos int64) {
		t.Helper()
		now, err := proto.Marshal(timestamppb.New(time.Unix(0, unixNanos)))
		if err != nil {
			t.Fatal(err)
		}
		// SetRequest { Timestamp now = 1; } has the shape of BytesValue { bytes value = 1; }.
		err = connection.Invoke(context.Background(), "/tidegate.test.v1.Clock/Set", wrapperspb.Bytes(now), new(wrapperspb.BytesValue))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// cases reads the cases of a file.
func cases[T any](t testing.TB, name, key string) []T {
	t.Helper()
	return partOf[[]T](t, name, key)
}

// rulesOf returns the rules that all cases of a file share.
func rulesOf(t testing.TB, name string) string {
	t.Helper()
	return partOf[string](t, name, "rules")
}

func partOf[T any](t testing.TB, name, key string) T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "clients/conformance/cases", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var part T
	if err := json.Unmarshal(file[key], &part); err != nil {
		t.Fatal(err)
	}
	return part
}

package tidegate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// endCase is a case of cases/ends.json.
type endCase struct {
	Name, Method, Path, Client string
	Status                     []int
}

// endingApplication has a response that ends in each way. Handlers of /slow wait until gate is closed.
func endingApplication(reached chan<- struct{}, gate <-chan struct{}) http.Handler {
	application := http.NewServeMux()
	respond := func(path string, status int, body string) {
		application.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	respond("/body", 200, "body")
	respond("/none", 204, "")
	respond("/same", 304, "")
	respond("/error", 500, "an error")
	respond("/large", 200, strings.Repeat("x", 8<<20))
	application.HandleFunc("/raise", func(http.ResponseWriter, *http.Request) { panic("of the handler") })
	application.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) {
		reached <- struct{}{}
		<-gate
	})
	late := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	application.Handle("/late", http.TimeoutHandler(http.HandlerFunc(late), 20*time.Millisecond, "late"))
	return application
}

func TestMiddlewareEnds(t *testing.T) {
	rules := rulesOf(t, "ends")
	for _, c := range cases[endCase](t, "ends", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			client := newClient(t, serve(t, rules).address)
			reached, gate := make(chan struct{}, 1), make(chan struct{})
			limited := client.Middleware(Limits{Keys: []KeySource{Constant("route", "all")}})
			server := httptest.NewUnstartedServer(limited(endingApplication(reached, gate)))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.Start()
			t.Cleanup(server.Close)
			waitUntilLeft := func(expected uint32) {
				t.Helper()
				for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
					decision, err := client.Peek(context.Background(), Key("route", "all"))
					if err == nil && decision.Remaining == expected {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("%d slots are left, expected %d: %v", decision.Remaining, expected, err)
					}
				}
			}
			connection, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintf(connection, "%s %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", c.Method, c.Path)
			if c.Client == "aborts" {
				<-reached
				_ = connection.Close()
				waitUntilLeft(0)
				// Concurrent with the handler, which runs on.
				if status := statusOf(t, server.URL+"/body"); status != http.StatusTooManyRequests {
					t.Fatalf("status %d", status)
				}
				close(gate)
			} else {
				// The connection of a handler that panics is closed.
				status := http.StatusInternalServerError
				response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: c.Method})
				if err == nil {
					status = response.StatusCode
				}
				if !slices.Contains(c.Status, status) {
					t.Fatalf("status %d", status)
				}
				if err == nil && c.Client == "reads" {
					_, _ = io.Copy(io.Discard, response.Body)
				}
				_ = connection.Close()
			}
			waitUntilLeft(1)
		})
	}
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

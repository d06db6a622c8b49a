package tidegate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// middlewareCase is a case of cases/middleware.json.
type middlewareCase struct {
	Name, Rules string
	Fault       *string
	OnFailure   string `json:"on_failure"`
	Descriptors [][]struct {
		Header, Constant *string
		ClientAddress    string `json:"client_address"`
		Entry, Missing   string
	}
	Requests []struct {
		Headers [][2]string
		Times   int
		Expect  middlewareResponse
	}
}

type middlewareResponse struct {
	Status         int
	Headers        map[string]string
	HeadersPresent []string `json:"headers_present"`
	HeadersAbsent  []string `json:"headers_absent"`
	Body           *string
	Seen           []string
}

func (c *middlewareCase) limits() Limits {
	missing := map[string]Missing{"reject": Reject, "allow": Allow, "shared": Shared}
	var descriptors [][]KeySource
	for _, keys := range c.Descriptors {
		var sources []KeySource
		for _, key := range keys {
			switch {
			case key.Header != nil:
				sources = append(sources, HeaderKey(key.Entry, *key.Header, missing[key.Missing]))
			case key.ClientAddress == "forwarded":
				sources = append(sources, ForwardedAddressKey(key.Entry, 1, missing[key.Missing]))
			case key.ClientAddress != "":
				sources = append(sources, ClientAddressKey(key.Entry, 1, missing[key.Missing]))
			default:
				sources = append(sources, Constant(key.Entry, *key.Constant))
			}
		}
		descriptors = append(descriptors, sources)
	}
	return Limits{Keys: descriptors[0], More: descriptors[1:]}
}

func TestMiddleware(t *testing.T) {
	for _, c := range cases[middlewareCase](t, "middleware", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			address := ""
			if c.Fault != nil {
				address = misbehaving(t, *c.Fault)
			} else {
				address = serve(t, c.Rules).address
			}
			policy := map[string]Policy{"open": FailOpen, "closed": FailClosed}[c.OnFailure]
			client := newClient(t, address, WithPolicy(policy))
			application := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, strings.Join(r.Header.Values("x-rate-limited"), ","))
			})
			server := httptest.NewServer(client.Middleware(c.limits())(application))
			t.Cleanup(server.Close)
			for number, request := range c.Requests {
				for range request.Times {
					response, body := exchange(t, server.Listener.Addr().String(), request.Headers)
					if problem := request.Expect.compare(response, body); problem != "" {
						t.Fatalf("request %d: %s", number, problem)
					}
				}
			}
		})
	}
}

// exchange sends a request as bytes, over its own connection: each character of a header is one byte.
func exchange(t *testing.T, address string, headers [][2]string) (*http.Response, string) {
	t.Helper()
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	request := []byte("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n")
	for _, header := range headers {
		for _, letter := range header[0] + ": " + header[1] + "\r\n" {
			request = append(request, byte(letter))
		}
	}
	if _, err := connection.Write(append(request, "\r\n"...)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// compare returns how a response differs; empty if it does not.
func (expected *middlewareResponse) compare(response *http.Response, body string) string {
	if response.StatusCode != expected.Status {
		return fmt.Sprintf("%s is not %d: %s", response.Status, expected.Status, body)
	}
	for name, value := range expected.Headers {
		if found := response.Header.Get(name); found != value {
			return fmt.Sprintf("%s is %q, not %q", name, found, value)
		}
	}
	for _, name := range expected.HeadersPresent {
		if response.Header.Get(name) == "" {
			return name + " is absent"
		}
	}
	for _, name := range expected.HeadersAbsent {
		if response.Header.Get(name) != "" {
			return name + " is present"
		}
	}
	if expected.Body != nil && body != *expected.Body {
		return fmt.Sprintf("the body is %q, not %q", body, *expected.Body)
	}
	seen := strings.FieldsFunc(body, func(letter rune) bool { return letter == ',' })
	if expected.Seen != nil && !slices.Equal(seen, expected.Seen) {
		return fmt.Sprintf("the application reads %q, not %q", seen, expected.Seen)
	}
	return ""
}

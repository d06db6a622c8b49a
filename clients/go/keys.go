package tidegate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Missing is the treatment of a request without the value of a key. There is no default: it is a decision about security.
type Missing int

const (
	// Reject refuses the request with 400 (gRPC: INVALID_ARGUMENT).
	Reject Missing = iota + 1
	// Skip does not limit the request here.
	Skip
	// Shared gives all such requests one counter, with the empty value.
	Shared
)

// Request has the parts of a request over HTTP or gRPC that keys read.
type Request struct {
	// Peer is the address of the other end of the connection, with or without port; empty if it has none.
	Peer string
	// Method is the HTTP method, or the full name of a gRPC method.
	Method string
	// Path is the path; of gRPC the full name of the method.
	Path string
	// Header is all values of a header, or of a metadata key.
	Header func(name string) []string
	// HTTP is the request; nil for gRPC.
	HTTP *http.Request
	// Context is that of the request.
	Context context.Context
}

// KeySource reads one entry of a descriptor from requests.
type KeySource struct {
	entry   string
	missing Missing
	read    func(Request) string
}

// Constant returns a key with the same value for each request, such as the name of a route.
func Constant(entry, value string) KeySource {
	return KeySource{entry, Shared, func(Request) string { return value }}
}

// HeaderKey returns a key with the value of a header, the last one if it is repeated.
func HeaderKey(entry, header string, missing Missing) KeySource {
	return KeySource{entry, missing, func(r Request) string {
		values := r.Header(header)
		if len(values) == 0 {
			return ""
		}
		return strings.TrimSpace(values[len(values)-1])
	}}
}

// KeyFunc returns a key with a value that a function reads; an empty one is missing.
func KeyFunc(entry string, missing Missing, read func(Request) string) KeySource {
	return KeySource{entry, missing, read}
}

// ClientAddressKey returns a key with the client's address; see [ClientAddress].
func ClientAddressKey(entry string, trustedProxies int, missing Missing) KeySource {
	return KeySource{entry, missing, func(r Request) string {
		address, _ := ClientAddress(r.Peer, r.Header("X-Forwarded-For"), trustedProxies)
		return address
	}}
}

// ClientAddress returns the client's address for a peer and the X-Forwarded-For lines: IPv4, or the /64 network of IPv6.
//
// trustedProxies is how many proxies of your own append to the header on the way. With 0 it is not read at all, since any
// client can write it.
func ClientAddress(peer string, forwardedFor []string, trustedProxies int) (string, bool) {
	if trustedProxies <= 0 {
		return normalized(peer)
	}
	written := strings.Split(strings.Join(forwardedFor, ","), ",")
	// Each trusted proxy has appended the address it saw; what stands left of them came from the client.
	if len(written) < trustedProxies {
		return "", false
	}
	return normalized(written[len(written)-trustedProxies])
}

func normalized(address string) (string, bool) {
	text := strings.TrimSpace(address)
	if inside, isBracketed := strings.CutPrefix(text, "["); isBracketed {
		text, _, _ = strings.Cut(inside, "]")
	} else if strings.Count(text, ":") == 1 {
		text, _, _ = strings.Cut(text, ":")
	}
	text, _, _ = strings.Cut(text, "%")
	parsed, err := netip.ParseAddr(text)
	if err != nil {
		return "", false
	}
	if parsed = parsed.Unmap(); parsed.Is4() {
		return parsed.String(), true
	}
	network, err := parsed.Prefix(64)
	if err != nil {
		return "", false
	}
	return network.String(), true
}

// errSkipped is returned for requests that are not limited.
var errSkipped = errors.New("tidegate: not limited")

// missingKeyError is returned for requests that are refused.
type missingKeyError struct{ entry string }

func (e *missingKeyError) Error() string { return fmt.Sprintf("the request has no %s", e.entry) }

func descriptorOf(keys []KeySource, r Request) (Descriptor, error) {
	descriptor := Descriptor{entries: make([]Entry, 0, len(keys))}
	for _, key := range keys {
		value := key.read(r)
		if value == "" {
			switch key.missing {
			case Skip:
				return Descriptor{}, errSkipped
			case Shared:
			default:
				return Descriptor{}, &missingKeyError{key.entry}
			}
		}
		descriptor.entries = append(descriptor.entries, Entry{key.entry, value})
	}
	return descriptor, nil
}

func ofHTTP(r *http.Request) Request {
	return Request{
		Peer:    r.RemoteAddr,
		Method:  r.Method,
		Path:    r.URL.Path,
		Header:  r.Header.Values,
		HTTP:    r,
		Context: r.Context(),
	}
}

func ofGRPC(ctx context.Context, method string) Request {
	address := ""
	if from, isKnown := peer.FromContext(ctx); isKnown {
		if tcp, isTCP := from.Addr.(*net.TCPAddr); isTCP {
			address = tcp.AddrPort().Addr().String()
		}
	}
	return Request{
		Peer:    address,
		Method:  method,
		Path:    method,
		Header:  func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) },
		Context: ctx,
	}
}

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

// Missing is the treatment of a request without the value of a key. It has no default: it is a decision about security.
type Missing int

const (
	// Reject refuses the request with 400 (gRPC: INVALID_ARGUMENT).
	Reject Missing = iota + 1
	// Allow does not limit the request by this descriptor.
	Allow
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
	// read returns the value, or a problem for which the request is refused.
	read func(Request) (string, error)
}

// Constant returns a key with the same value for each request, such as the name of a route.
func Constant(entry, value string) KeySource {
	return KeyFunc(entry, func(Request) string { return value }, Shared)
}

// HeaderKey returns a key with the value of a header. A request that repeats the header is refused, whatever the values: the application
// may read another of them than the key. The value may be any bytes.
func HeaderKey(entry, header string, missing Missing) KeySource {
	return KeySource{entry, missing, func(r Request) (string, error) {
		values := r.Header(header)
		switch {
		case len(values) == 0:
			return "", nil
		case len(values) > 1:
			return "", &badRequestError{"the request repeats the header " + header}
		}
		return strings.TrimSpace(values[0]), nil
	}}
}

// KeyFunc returns a key with a value that a function reads. An empty value, or only spaces, counts as missing.
func KeyFunc(entry string, read func(Request) string, missing Missing) KeySource {
	return KeySource{entry, missing, func(r Request) (string, error) { return read(r), nil }}
}

// ClientAddressKey returns a key with the client's address; see [ClientAddress].
func ClientAddressKey(entry string, trustedProxies int, missing Missing) KeySource {
	return KeyFunc(entry, func(r Request) string {
		address, _ := ClientAddress(r.Peer, r.Header("X-Forwarded-For"), trustedProxies)
		return address
	}, missing)
}

// ClientAddress returns the client's address for a peer and the X-Forwarded-For lines: IPv4, or the /64 network of IPv6.
//
// trustedProxies is the number of your own proxies that append to the header. With 0 it is not read at all, since any client can write it.
func ClientAddress(peer string, forwardedFor []string, trustedProxies int) (string, bool) {
	if trustedProxies <= 0 {
		return normalized(peer)
	}
	written := strings.Split(strings.Join(forwardedFor, ","), ",")
	// Each trusted proxy has appended the address it saw; the client wrote everything left of these.
	if len(written) < trustedProxies {
		return "", false
	}
	return normalized(written[len(written)-trustedProxies])
}

// ForwardedAddressKey returns a key with the client's address behind proxies that append to Forwarded; see [ForwardedAddress]. It panics if
// there are none: no request would have an address.
func ForwardedAddressKey(entry string, trustedProxies int, missing Missing) KeySource {
	if trustedProxies < 1 {
		panic(fmt.Sprintf("tidegate: ForwardedAddressKey with %d trusted proxies; use 1 or more", trustedProxies))
	}
	return KeyFunc(entry, func(r Request) string {
		address, _ := ForwardedAddress(r.Header("Forwarded"), trustedProxies)
		return address
	}, missing)
}

// ForwardedAddress returns the client's address for the Forwarded lines (RFC 7239) of trustedProxies proxies of your own, at least one:
// IPv4, or the /64 network of IPv6.
func ForwardedAddress(forwarded []string, trustedProxies int) (string, bool) {
	element, isThere := fromTheRight(strings.Join(forwarded, ","), trustedProxies)
	pairs, isClosed := split(element)
	if !isThere || !isClosed {
		return "", false
	}
	var nodes []string
	for _, pair := range pairs {
		if name, node, _ := strings.Cut(pair, "="); strings.EqualFold(strings.TrimSpace(name), "for") {
			nodes = append(nodes, strings.Trim(strings.TrimSpace(node), `"`))
		}
	}
	if len(nodes) != 1 {
		return "", false
	}
	return normalized(nodes[0])
}

// fromTheRight returns the element of a list at this position, counted from the right. Quotes are paired from the right too: the elements of
// trusted proxies are whole, and left of them a client may have left a quote open.
func fromTheRight(list string, position int) (string, bool) {
	end, isQuoted := len(list), false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && !(isQuoted && isEscaped(list[:i])):
			isQuoted = !isQuoted
		case list[i] == ',' && !isQuoted:
			if position--; position == 0 {
				return list[i+1 : end], true
			}
			end = i
		}
	}
	return list[:end], position == 1
}

// isEscaped returns whether a character after this text is escaped, within quotes.
func isEscaped(before string) bool {
	return (len(before)-len(strings.TrimRight(before, `\`)))%2 == 1
}

// split splits a text at semicolons outside of quotes, and returns whether all quotes are closed.
func split(text string) ([]string, bool) {
	var parts []string
	start, isQuoted, isEscaped := 0, false, false
	for i := range len(text) {
		if text[i] == ';' && !isQuoted {
			parts = append(parts, text[start:i])
			start = i + 1
			continue
		}
		if text[i] == '"' && !isEscaped {
			isQuoted = !isQuoted
		}
		isEscaped = isQuoted && text[i] == '\\' && !isEscaped
	}
	return append(parts, text[start:]), !isQuoted
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

// badRequestError is returned for requests that are refused.
type badRequestError struct{ problem string }

func (e *badRequestError) Error() string { return e.problem }

// descriptorOf returns the descriptor of a request; errSkipped if the descriptor does not limit it.
func descriptorOf(keys []KeySource, r Request) (Descriptor, error) {
	descriptor := Descriptor{entries: make([]Entry, 0, len(keys))}
	isSkipped := false
	for _, key := range keys {
		value, err := key.read(r)
		if err != nil {
			return Descriptor{}, err
		}
		if strings.TrimSpace(value) == "" {
			switch key.missing {
			case Allow:
				// A later key may still refuse the request.
				isSkipped = true
			case Shared:
				value = ""
			default:
				return Descriptor{}, &badRequestError{"the request has no " + key.entry}
			}
		}
		descriptor.entries = append(descriptor.entries, Entry{key.entry, value})
	}
	if isSkipped {
		return Descriptor{}, errSkipped
	}
	return descriptor, nil
}

// headerValues returns all values of a header. net/http has Host beside the other headers.
func headerValues(r *http.Request, name string) []string {
	if strings.EqualFold(name, "Host") && r.Host != "" {
		return []string{r.Host}
	}
	return r.Header.Values(name)
}

func ofHTTP(r *http.Request) Request {
	return Request{
		Peer:    r.RemoteAddr,
		Method:  r.Method,
		Path:    r.URL.Path,
		Header:  func(name string) []string { return headerValues(r, name) },
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
		Peer:   address,
		Method: method,
		Path:   method,
		Header: func(name string) []string {
			// gRPC has the host of a call in a pseudo-header of HTTP/2.
			if strings.EqualFold(name, "Host") {
				name = ":authority"
			}
			return metadata.ValueFromIncomingContext(ctx, name)
		},
		Context: ctx,
	}
}

package tidegate

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// addressPolicy is the name of the load balancing policy: round-robin over the connected addresses whose breaker is closed.
//
// Policies of gRPC are registered by name for the whole process. This policy has no state of a client: it reads the breakers from the
// context of each call, where they are part of the [attempt].
const addressPolicy = "tidegate_addresses"

func init() {
	balancer.Register(base.NewBalancerBuilder(addressPolicy, addressPickers{}, base.Config{}))
}

// checkAddress returns an error for an address without a port. Targets of gRPC with a scheme have their own syntax.
func checkAddress(address string) error {
	if scheme, rest, hasScheme := strings.Cut(address, ":"); hasScheme &&
		(strings.HasPrefix(rest, "//") || scheme == "unix" || scheme == "unix-abstract" || resolver.Get(scheme) != nil) {
		return nil
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("tidegate: the address %q has no port; write host:port, such as 127.0.0.1:8081", address)
	}
	return nil
}

// authorityOf returns the name that the server at an address proves with its certificate.
func authorityOf(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return "localhost"
	}
	return address
}

// attempt is a call as the balancer sees it: the inputs of its choice, and the choice.
type attempt struct {
	client *Client
	sent   time.Duration
	// only is the address of a probe; empty for the calls of users.
	only string

	// breaker is the chosen address's, nil if none is connected; permit is the permission to use it.
	breaker *breaker
	permit  permit
	// ready are the connected addresses.
	ready []readyAddress
	// isRefused is whether the breakers of all connected addresses are open.
	isRefused bool
	// due is an address whose breaker permits a probe beside this call; empty if there is none.
	due string
}

type attemptKey struct{}

// begin returns the attempt of a call.
func (c *Client) begin(sent time.Duration) *attempt { return &attempt{client: c, sent: sent} }

// settled returns the breaker and the permission that the outcome of the call counts for: those of the address, or of the client's own
// breaker if no address is connected. The call has entered the client's own breaker.
func (a *attempt) settled(p permit) (*breaker, permit) {
	if a.breaker == nil {
		return &a.client.breaker, p
	}
	a.client.breaker.succeeded(p, a.sent)
	return a.breaker, a.permit
}

// hasOther returns whether another address is in use.
func (a *attempt) hasOther() bool {
	for i := range a.ready {
		if found := a.client.breakerOf(a.ready[i].address); found != a.breaker && !found.isOpen.Load() {
			return true
		}
	}
	return false
}

// breakerOf returns the breaker of an address.
func (c *Client) breakerOf(address string) *breaker {
	if found, isKnown := c.breakers.Load(address); isKnown {
		return found.(*breaker)
	}
	found, _ := c.breakers.LoadOrStore(address, &breaker{failuresMax: c.breaker.failuresMax, openFor: c.breaker.openFor})
	return found.(*breaker)
}

// probe sends a peek to an address whose breaker is open, while calls use other addresses: no user's call is lost to test whether the
// server answers again.
func (c *Client) probe(address string, message *rls.RateLimitRequest) {
	sent := c.now()
	found := c.breakerOf(address)
	_, err := c.send(context.Background(), c.timeout, message, &attempt{client: c, sent: sent, only: address})
	if err == nil || isCallersError(status.Code(err)) {
		found.succeeded(permitProbe, sent)
		return
	}
	found.failed(permitProbe, sent, c.now(), false)
}

var errBreakersOpen = status.Error(codes.Unavailable, "the breakers of all addresses are open")

// addressPickers builds the picker of a set of connected addresses.
type addressPickers struct{}

func (addressPickers) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	picker := &addressPicker{}
	for connection, about := range info.ReadySCs {
		picker.ready = append(picker.ready, readyAddress{about.Address.Addr, connection})
	}
	return picker
}

type readyAddress struct {
	address    string
	connection balancer.SubConn
}

type addressPicker struct {
	ready []readyAddress
	next  atomic.Uint32
}

func (p *addressPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call, isOurs := info.Ctx.Value(attemptKey{}).(*attempt)
	start := int(p.next.Add(1))
	if !isOurs {
		return balancer.PickResult{SubConn: p.ready[start%len(p.ready)].connection}, nil
	}
	if call.only != "" {
		return p.pickOnly(call.only)
	}
	if call.breaker != nil {
		// gRPC repeats a call that the server did not process.
		call.breaker.abandoned(call.permit)
		call.breaker = nil
	}
	call.ready = p.ready
	var probed *readyAddress
	for offset := range p.ready {
		candidate := &p.ready[(start+offset)%len(p.ready)]
		found := call.client.breakerOf(candidate.address)
		switch found.enter(call.sent) {
		case permitCall:
			if probed != nil {
				call.due = probed.address
			}
			call.breaker, call.permit = found, permitCall
			return balancer.PickResult{SubConn: candidate.connection}, nil
		case permitProbe:
			if probed != nil {
				found.abandoned(permitProbe)
				continue
			}
			probed = candidate
		}
	}
	if probed == nil {
		call.isRefused = true
		return balancer.PickResult{}, errBreakersOpen
	}
	call.breaker, call.permit = call.client.breakerOf(probed.address), permitProbe
	return balancer.PickResult{SubConn: probed.connection}, nil
}

func (p *addressPicker) pickOnly(address string) (balancer.PickResult, error) {
	for _, candidate := range p.ready {
		if candidate.address == address {
			return balancer.PickResult{SubConn: candidate.connection}, nil
		}
	}
	return balancer.PickResult{}, status.Error(codes.Unavailable, address+" is not connected")
}

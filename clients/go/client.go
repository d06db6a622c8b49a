package tidegate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
)

// Policy is the decision for a request without a response.
type Policy int

const (
	// FailOpen allows the request.
	FailOpen Policy = iota + 1
	// FailClosed denies the request.
	FailClosed
)

// Client requests decisions from a Tidegate server. It is safe for concurrent use, and its calls share one connection for each
// address.
type Client struct {
	domain  string
	timeout time.Duration
	// firstTimeout is the timeout until the first call is over: it opens the connection.
	firstTimeout time.Duration
	isWarm       atomic.Bool
	policy       Policy
	denials      *localDenials
	// fallback counts requests without an answer; nil if there is none.
	fallback *localLimits
	// breaker is the client's own, for calls while no address is connected.
	breaker breaker
	// breakers has the breaker of each address.
	breakers sync.Map
	// lastFailure is the code and message of the last failure.
	lastFailure atomic.Pointer[string]
	observers   []func(context.Context, Decision, time.Duration)
	failures    failureLog
	isClosed    atomic.Bool
	// fake decides instead of a server; nil outside of tests.
	fake func(Call) Decision
	// now is the time since a fixed moment.
	now func() time.Duration

	connection *grpc.ClientConn
	stub       rls.RateLimitServiceClient
}

// Option is a setting of a client.
type Option func(*settings)

type settings struct {
	domain          string
	timeout         time.Duration
	connectTimeout  time.Duration
	policy          Policy
	localDenialsMax int
	localDenialsFor time.Duration
	logger          *slog.Logger
	breakerFailures int
	breakerOpen     time.Duration
	observers       []func(context.Context, Decision, time.Duration)
	credentials     credentials.TransportCredentials
	dialOptions     []grpc.DialOption
	addresses       []string
	fallback        []LocalLimit
	now             func() time.Duration
}

// Domain sets the domain of calls that name none.
func Domain(domain string) Option { return func(s *settings) { s.domain = domain } }

// WithTimeout sets the time until an answer counts as missing, 50 ms if not given.
func WithTimeout(timeout time.Duration) Option { return func(s *settings) { s.timeout = timeout } }

// WithConnectTimeout sets the timeout of the first call, which opens the connection; 1 s if not given.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.connectTimeout = timeout }
}

// WithPolicy sets the decision for requests without a response, [FailOpen] if not given.
func WithPolicy(policy Policy) Option { return func(s *settings) { s.policy = policy } }

// WithLocalDenials sets how many denials are kept, 10,000 if not given; 0 keeps none.
func WithLocalDenials(kept int) Option { return func(s *settings) { s.localDenialsMax = kept } }

// WithLocalDenialsFor sets for how long a denial is kept at most, 1 s if not given, and never beyond its reset; 0 keeps none.
func WithLocalDenialsFor(longest time.Duration) Option {
	return func(s *settings) { s.localDenialsFor = longest }
}

// WithLogger sets the logger of failures, [slog.Default] if not given.
func WithLogger(logger *slog.Logger) Option { return func(s *settings) { s.logger = logger } }

// WithBreaker sets after how many failures in a row calls fail at once, and for how long; 5 and 1 s if not given. 0 failures
// switch it off.
func WithBreaker(failures int, open time.Duration) Option {
	return func(s *settings) { s.breakerFailures, s.breakerOpen = failures, open }
}

// WithObserver adds a function that is called with each decision and the time it took, for metrics.
func WithObserver(observer func(context.Context, Decision, time.Duration)) Option {
	return func(s *settings) { s.observers = append(s.observers, observer) }
}

// WithTLS encrypts connections: credentials.NewTLS has TLS and mTLS.
func WithTLS(transport credentials.TransportCredentials) Option {
	return func(s *settings) { s.credentials = transport }
}

// WithAddresses adds addresses; calls use all of them, round-robin.
func WithAddresses(addresses ...string) Option {
	return func(s *settings) { s.addresses = append(s.addresses, addresses...) }
}

// WithDialOptions adds options of gRPC, such as a stats handler for traces.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dialOptions = append(s.dialOptions, options...) }
}

// New creates a client. The address is host:port (round-robin over all addresses of a DNS name), unix:/path/of/socket, or any other
// target of gRPC. The connection is opened by the first call.
func New(address string, options ...Option) (*Client, error) {
	started := time.Now()
	s := settings{
		timeout:         50 * time.Millisecond,
		connectTimeout:  time.Second,
		policy:          FailOpen,
		localDenialsMax: 10_000,
		localDenialsFor: time.Second,
		breakerFailures: 5,
		breakerOpen:     time.Second,
		credentials:     insecure.NewCredentials(),
		now:             func() time.Duration { return time.Since(started) },
	}
	for _, option := range options {
		option(&s)
	}
	if s.timeout <= 0 {
		return nil, fmt.Errorf("tidegate: the timeout is %s; use more than 0", s.timeout)
	}
	if s.policy != FailOpen && s.policy != FailClosed {
		return nil, errors.New("tidegate: the policy is neither FailOpen nor FailClosed")
	}
	for _, one := range append([]string{address}, s.addresses...) {
		if err := checkAddress(one); err != nil {
			return nil, err
		}
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(s.credentials),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + addressPolicy + `": {}}]}`),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			// The timeout of one attempt.
			MinConnectTimeout: max(time.Second, s.connectTimeout),
		}),
		grpc.WithIdleTimeout(0),
	}
	if len(s.addresses) > 0 {
		static := manual.NewBuilderWithScheme("tidegate")
		state := resolver.State{}
		for _, one := range append([]string{address}, s.addresses...) {
			// The name that the server's certificate has to have.
			state.Addresses = append(state.Addresses, resolver.Address{Addr: one, ServerName: authorityOf(one)})
		}
		static.InitialState(state)
		dial = append(dial, grpc.WithResolvers(static))
		address = "tidegate:///" + address
	}
	connection, err := grpc.NewClient(address, append(dial, s.dialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("tidegate: %w", err)
	}
	var fallback *localLimits
	if len(s.fallback) > 0 {
		// Windows are those of the wall clock at the start. Steps of that clock do not move them: a step back would end limits early.
		epoch := time.Duration(started.UnixNano()) - s.now()
		if fallback, err = newLocalLimits(s.fallback, func() time.Duration { return epoch + s.now() }); err != nil {
			return nil, err
		}
	}
	return &Client{
		fallback:     fallback,
		domain:       s.domain,
		timeout:      s.timeout,
		firstTimeout: max(s.timeout, s.connectTimeout),
		policy:       s.policy,
		denials:      newLocalDenials(s.localDenialsMax, s.localDenialsFor),
		breaker:      breaker{failuresMax: s.breakerFailures, openFor: s.breakerOpen},
		observers:    s.observers,
		failures:     failureLog{logger: s.logger},
		now:          s.now,
		connection:   connection,
		stub:         rls.NewRateLimitServiceClient(connection),
	}, nil
}

// ErrClosed is the error of calls after [Client.Close].
var ErrClosed = errors.New("tidegate: the client is closed")

// Close closes the connections. Closing twice is allowed.
func (c *Client) Close() error {
	if c.isClosed.Swap(true) || c.connection == nil {
		return nil
	}
	return c.connection.Close()
}

// Allow takes hits of every limit that the descriptors reach, or none at all: one hit, unless an option is [Cost].
//
// The error is that of ctx if the caller gave up, or a [*RequestError].
func (c *Client) Allow(ctx context.Context, options ...CallOption) (Decision, error) {
	r := c.request(1, options)
	return c.decide(ctx, &r)
}

// Peek returns whether one more hit would be admitted, without taking it.
func (c *Client) Peek(ctx context.Context, options ...CallOption) (Decision, error) {
	r := c.request(0, options)
	r.usesLocal = false
	return c.decide(ctx, &r)
}

// GiveBack gives back hits that were taken. From then on this client keeps no denials for descriptors with the same keys.
func (c *Client) GiveBack(ctx context.Context, options ...CallOption) (Decision, error) {
	r := c.request(1, options)
	r.usesLocal, r.giveBack = false, true
	return c.decide(ctx, &r)
}

// Wait takes hits as soon as they fit, waiting at most waitMax. It returns a denial at once if that does not end by then.
func (c *Client) Wait(ctx context.Context, waitMax time.Duration, options ...CallOption) (Decision, error) {
	until := after(c.now(), waitMax)
	for {
		r := c.request(1, options)
		decision, err := c.decide(ctx, &r)
		if err != nil || decision.Allowed || decision.RetryAfter == Never || after(c.now(), decision.RetryAfter) > until {
			return decision, err
		}
		timer := time.NewTimer(decision.RetryAfter)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return decision, ctx.Err()
		}
	}
}

// after returns the time that comes some wait after another; the last possible time if there is none.
func after(now, wait time.Duration) time.Duration {
	if wait > 0 && now > math.MaxInt64-wait {
		return math.MaxInt64
	}
	return now + wait
}

func (c *Client) request(cost uint64, options []CallOption) request {
	r := request{
		domain:    c.domain,
		cost:      cost,
		timeout:   c.firstTimeout,
		policy:    c.policy,
		usesLocal: c.denials.max > 0,
	}
	if c.isWarm.Load() {
		r.timeout = c.timeout
	}
	for _, option := range options {
		option.apply(&r)
	}
	return r
}

// RequestError is the server's refusal of the request itself: retrying it cannot help, and failing open would let an overlong
// key pass every limit.
type RequestError struct {
	// Code is the code of the gRPC status.
	Code codes.Code
	// Message is the server's message.
	Message string
}

func (e *RequestError) Error() string { return fmt.Sprintf("tidegate: %s: %s", e.Code, e.Message) }

func (c *Client) decide(ctx context.Context, r *request) (Decision, error) {
	if err := r.check(); err != nil {
		return Decision{}, err
	}
	if c.isClosed.Load() {
		return Decision{}, ErrClosed
	}
	sent := c.now()
	if c.fake != nil {
		decision := c.fake(r.call())
		c.observe(ctx, decision, sent)
		return decision, nil
	}
	if r.usesLocal {
		if denial, isKept := c.denials.find(r, sent); isKept {
			c.observe(ctx, denial, sent)
			return denial, nil
		}
	}
	if r.givesBack() {
		c.denials.endFor(r)
	}
	p := c.breaker.enter(sent)
	if p == permitNone {
		return c.broken(ctx, r, sent), nil
	}
	a := c.begin(sent)
	isOver := false
	defer func() {
		// An interceptor panicked: the call has no outcome.
		if !isOver {
			settled, p := a.settled(p)
			settled.abandoned(p)
		}
	}()
	response, err := c.send(ctx, r.timeout, r.message(), a)
	isOver = true
	settled, p := a.settled(p)
	if a.due != "" {
		go c.probe(a.due, r.peekMessage())
	}
	if !c.isWarm.Load() {
		c.isWarm.Store(true)
	}
	if a.isRefused {
		c.breaker.succeeded(p, sent)
		return c.broken(ctx, r, sent), nil
	}
	if err != nil {
		return c.failed(ctx, r, a, settled, p, err)
	}
	var decision Decision
	switch response.OverallCode {
	case rls.RateLimitResponse_OK:
		decision = decode(true, response)
	case rls.RateLimitResponse_OVER_LIMIT:
		decision = decode(false, response)
		if r.usesLocal {
			c.denials.keep(r, decision, sent)
		}
	default:
		return c.failed(ctx, r, a, settled, p, status.Error(codes.Internal, "an answer without a verdict"))
	}
	settled.succeeded(p, sent)
	c.failures.ended(ctx)
	c.observe(ctx, decision, sent)
	return decision, nil
}

// send sends a message to the address that the balancer chooses.
func (c *Client) send(ctx context.Context, timeout time.Duration, message *rls.RateLimitRequest, a *attempt) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, attemptKey{}, a), timeout)
	defer cancel()
	return c.stub.ShouldRateLimit(metadata.AppendToOutgoingContext(ctx, "tidegate-precision", "exact"), message)
}

// broken returns the decision of a call that is not made, since a breaker is open.
func (c *Client) broken(ctx context.Context, r *request, sent time.Duration) Decision {
	message := ""
	if last := c.lastFailure.Load(); last != nil {
		message = *last
	}
	return c.withoutAnswer(ctx, r, "BREAKER_OPEN", message, sent)
}

// isCallersError returns whether a code is a fault of the request, whatever the server's state. Every other code is a failure of the
// server, or of a proxy in front of it.
func isCallersError(code codes.Code) bool {
	return code == codes.InvalidArgument || code == codes.OutOfRange
}

func (c *Client) failed(ctx context.Context, r *request, a *attempt, settled *breaker, p permit, err error) (Decision, error) {
	if gaveUp := ctx.Err(); gaveUp != nil {
		settled.abandoned(p)
		return Decision{}, gaveUp
	}
	found := status.Convert(err)
	if isCallersError(found.Code()) {
		settled.succeeded(p, a.sent)
		c.failures.refused(ctx, found, c.now())
		return Decision{}, &RequestError{found.Code(), found.Message()}
	}
	name := codeName(found.Code())
	message := found.Message()
	if cause, isResolver := strings.CutPrefix(message, "last resolver error: "); isResolver {
		message = "no address of " + c.connection.Target() + " was found: " + cause
	}
	last := name + ": " + message
	c.lastFailure.Store(&last)
	settled.failed(p, a.sent, c.now(), a.hasOther())
	return c.withoutAnswer(ctx, r, name, message, a.sent), nil
}

func (c *Client) withoutAnswer(ctx context.Context, r *request, failure, message string, sent time.Duration) Decision {
	decision := Decision{
		Allowed:        true,
		Reason:         FailedOpen,
		ResetAfter:     Never,
		RetryAfter:     Never,
		Failure:        failure,
		FailureMessage: message,
	}
	if statuses := c.fallBack(r); len(statuses) > 0 {
		decision = newDecision(!slices.ContainsFunc(statuses, func(status Status) bool { return status.OverLimit }), statuses)
		decision.Reason, decision.Failure, decision.FailureMessage = FailedOpen, failure, message
		if !decision.Allowed {
			decision.Reason = FailedClosed
		}
	} else if r.policy == FailClosed {
		decision.Allowed, decision.Reason = false, FailedClosed
	}
	c.failures.failed(ctx, decision, c.now())
	c.observe(ctx, decision, sent)
	return decision
}

func (c *Client) observe(ctx context.Context, decision Decision, since time.Duration) {
	if len(c.observers) == 0 {
		return
	}
	taken := c.now() - since
	for _, observer := range c.observers {
		c.observeBy(ctx, observer, decision, taken)
	}
}

// observeBy calls an observer, whose panic must not cost the decision.
func (c *Client) observeBy(ctx context.Context, observer func(context.Context, Decision, time.Duration), decision Decision, taken time.Duration) {
	defer func() {
		if reason := recover(); reason != nil {
			c.failures.log().ErrorContext(ctx, "an observer of rate limit decisions panicked", "panic", reason)
		}
	}()
	observer(ctx, decision, taken)
}

// codeName returns the name of a code as the gRPC specification has it: DEADLINE_EXCEEDED.
func codeName(code codes.Code) string {
	// Go's spelling has one L.
	if code == codes.Canceled {
		return "CANCELLED"
	}
	var name strings.Builder
	text := code.String()
	for i, letter := range text {
		if i > 0 && letter >= 'A' && letter <= 'Z' && text[i-1] >= 'a' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToUpper(name.String())
}

func decode(allowed bool, response *rls.RateLimitResponse) Decision {
	statuses := make([]Status, len(response.Statuses))
	for i, sent := range response.Statuses {
		decoded := Status{
			OverLimit:  sent.Code == rls.RateLimitResponse_OVER_LIMIT,
			Remaining:  sent.LimitRemaining,
			ResetAfter: Never,
			Mode:       decodeMode(sent.ProtoReflect().GetUnknown()),
		}
		if limit := sent.CurrentLimit; limit != nil {
			decoded.Limit = decodeLimit(limit)
		}
		if sent.DurationUntilReset != nil {
			decoded.ResetAfter = sent.DurationUntilReset.AsDuration()
		}
		statuses[i] = decoded
	}
	decision := newDecision(allowed, statuses)
	for _, header := range response.RequestHeadersToAdd {
		decision.RequestHeaders = append(decision.RequestHeaders, Header{header.Key, value(header.Value, header.RawValue)})
	}
	for _, header := range response.ResponseHeadersToAdd {
		decision.ResponseHeaders = append(decision.ResponseHeaders, Header{header.Key, value(header.Value, header.RawValue)})
	}
	decision.Body = response.RawBody
	metadata := response.GetDynamicMetadata().GetFields()
	if decision.Ticket = metadata["slot"].GetStringValue(); decision.Ticket != "" {
		decision.TicketCost = max(uint64(max(metadata["cost"].GetNumberValue(), 0)), 1)
	}
	return decision
}

func value(text string, raw []byte) string {
	if text == "" {
		return string(raw)
	}
	return text
}

package tidegate

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Limits describes what middleware limits.
type Limits struct {
	// Keys are the entries of the descriptor, in order; at least one.
	Keys []KeySource
	// More are further descriptors, each with its entries. All are decided as one request.
	More [][]KeySource
	// Cost returns the hits of a request; 1 if nil.
	Cost func(Request) uint64
	// Skip returns whether a request is not limited, such as a health check; none if nil.
	Skip func(Request) bool
	// Options of each call, such as [OnFailure].
	Options []CallOption
	// LegacyHeaders is whether X-RateLimit-… headers are sent as well.
	LegacyHeaders bool
	// DeniedBody returns the content type and the body of a denial over HTTP; those of the rule, or Too Many Requests, if nil.
	DeniedBody func(Decision, Request) (contentType string, body []byte)
	// Counts returns whether a request over HTTP counts, by the status of its response; all do if nil. The hits of other requests are given
	// back at the end: use it only for limits without reserve.
	Counts func(status int) bool
}

type decisionKey struct{}

// FromContext returns the decision that middleware made for a request.
func FromContext(ctx context.Context) (Decision, bool) {
	decision, isThere := ctx.Value(decisionKey{}).(Decision)
	return decision, isThere
}

// Middleware returns middleware for net/http and for routers with the same signature, such as chi.
//
// A denied request is answered with 429, a request without an answer under [FailClosed] with 503. Slots of limits of requests in flight are
// released when the handler returns or panics, even if its client leaves before. With [http.TimeoutHandler] inside, that is before the
// inner handler ends. Nested middlewares list the limits of all in the headers.
func (c *Client) Middleware(limits Limits) func(http.Handler) http.Handler {
	limits.check()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			request := ofHTTP(r)
			slot, descriptors, err := c.limit(r.Context(), limits, request)
			// Also if the client leaves at the moment of the decision.
			defer slot.releaseLater()
			var bad *badRequestError
			switch {
			case errors.Is(err, errSkipped):
				next.ServeHTTP(w, r)
				return
			case errors.As(err, &bad):
				http.Error(w, bad.Error(), http.StatusBadRequest)
				return
			case r.Context().Err() != nil:
				// The client has left, so its handler is not started.
				return
			case err != nil:
				c.failures.log().ErrorContext(r.Context(), "a request cannot be decided", "error", err)
				http.Error(w, "rate limit error", http.StatusInternalServerError)
				return
			}
			decision := slot.Decision
			if decision.Reason == FailedClosed && len(decision.Statuses) == 0 {
				http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
				return
			}
			addHeaders(w.Header(), limits.headers(decision))
			if !decision.Allowed {
				limits.refuse(w, decision, request)
				return
			}
			if limits.Counts != nil && decision.Failure == "" {
				// Until a response begins, the status is that of a handler that panics.
				counted := &countedWriter{ResponseWriter: w, status: http.StatusInternalServerError}
				w = counted
				defer func() { c.giveBackUncounted(r.Context(), limits, counted, descriptors) }()
			}
			r = r.WithContext(context.WithValue(r.Context(), decisionKey{}, decision))
			if len(decision.RequestHeaders) > 0 {
				// A handler must not change its request.
				r.Header = r.Header.Clone()
				mark(decision, r.Header.Del, r.Header.Add)
			}
			next.ServeHTTP(w, r)
			if counted, isCounted := w.(*countedWriter); isCounted {
				counted.start(http.StatusOK)
			}
		})
	}
}

// mark replaces the client's headers of the same names by the decision's request headers.
func mark(decision Decision, remove func(name string), add func(name, value string)) {
	for _, header := range decision.RequestHeaders {
		remove(header.Name)
	}
	for _, header := range decision.RequestHeaders {
		add(header.Name, header.Value)
	}
}

// addHeaders adds the headers of a decision to those of an outer middleware: lists name the limits of both.
func addHeaders(present, decided http.Header) {
	for name, values := range decided {
		if outer := present.Get(name); outer != "" && (name == "Ratelimit" || name == "Ratelimit-Policy") {
			values = []string{outer + ", " + strings.Join(values, ", ")}
		}
		present[name] = values
	}
}

// countedWriter records the status of a response.
type countedWriter struct {
	http.ResponseWriter
	status     int
	hasStarted bool
}

// start notes the status of a response that begins.
func (w *countedWriter) start(status int) {
	if !w.hasStarted && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status, w.hasStarted = status, true
	}
}

func (w *countedWriter) WriteHeader(status int) {
	w.start(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *countedWriter) Write(body []byte) (int, error) {
	w.start(http.StatusOK)
	return w.ResponseWriter.Write(body)
}

// Unwrap is for [http.ResponseController].
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *countedWriter) Flush() {
	w.start(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *countedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.start(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}

// giveBackUncounted gives back the hits of a request that does not count.
func (c *Client) giveBackUncounted(ctx context.Context, limits Limits, response *countedWriter, descriptors []CallOption) {
	if limits.Counts(response.status) {
		return
	}
	// The request is over: its context may be cancelled.
	ctx = context.WithoutCancel(ctx)
	go func() {
		if _, err := c.GiveBack(ctx, append(descriptors, limits.Options...)...); err != nil {
			c.failures.log().WarnContext(ctx, "hits of a request that does not count are not given back", "error", err)
		}
	}()
}

func (l *Limits) refuse(w http.ResponseWriter, decision Decision, request Request) {
	body := decision.Body
	if l.DeniedBody != nil {
		var contentType string
		contentType, body = l.DeniedBody(decision, request)
		w.Header().Set("Content-Type", contentType)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(http.StatusTooManyRequests)
	if len(body) == 0 {
		body = []byte("Too Many Requests\n")
	}
	// The client may have gone.
	_, _ = w.Write(body)
}

// UnaryServerInterceptor returns an interceptor for unary calls.
//
// A denied call ends with RESOURCE_EXHAUSTED and the headers of the decision in its trailers, a call without an answer under [FailClosed]
// with UNAVAILABLE.
func (c *Client) UnaryServerInterceptor(limits Limits) grpc.UnaryServerInterceptor {
	limits.check()
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, slot, err := c.limitCall(ctx, limits, info.FullMethod, func(trailer metadata.MD) { _ = grpc.SetTrailer(ctx, trailer) })
		if err != nil {
			return nil, err
		}
		defer slot.releaseLater()
		return handler(ctx, message)
	}
}

// StreamServerInterceptor returns an interceptor for streams: one decision for each stream. See
// [Client.UnaryServerInterceptor].
func (c *Client) StreamServerInterceptor(limits Limits) grpc.StreamServerInterceptor {
	limits.check()
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, slot, err := c.limitCall(stream.Context(), limits, info.FullMethod, stream.SetTrailer)
		if err != nil {
			return err
		}
		defer slot.releaseLater()
		return handler(server, &limitedStream{stream, ctx})
	}
}

// limitedStream is a stream with the decision in its context.
type limitedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *limitedStream) Context() context.Context { return s.ctx }

// limitCall returns the context of an allowed call, and its slot.
func (c *Client) limitCall(ctx context.Context, limits Limits, method string, setTrailer func(metadata.MD)) (context.Context, *Slot, error) {
	slot, _, err := c.limit(ctx, limits, ofGRPC(ctx, method))
	var bad *badRequestError
	switch {
	case errors.Is(err, errSkipped):
		return ctx, nil, nil
	case errors.As(err, &bad):
		return nil, nil, status.Error(codes.InvalidArgument, bad.Error())
	case ctx.Err() != nil:
		// The caller may leave at the moment of the decision.
		slot.releaseLater()
		return nil, nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		c.failures.log().ErrorContext(ctx, "a call cannot be decided", "error", err)
		return nil, nil, status.Error(codes.Internal, "rate limit error")
	case slot.Reason == FailedClosed && len(slot.Statuses) == 0:
		return nil, nil, status.Error(codes.Unavailable, "no answer from the rate limit server")
	}
	decision := slot.Decision
	trailer := metadata.MD{}
	for name, values := range limits.headers(decision) {
		if name != "Content-Type" {
			trailer[strings.ToLower(name)] = values
		}
	}
	setTrailer(trailer)
	if !decision.Allowed {
		message := "Too Many Requests"
		if decision.RetryAfter != Never {
			message += "; retry after " + seconds(decision.RetryAfter) + " s"
		}
		return nil, nil, status.Error(codes.ResourceExhausted, message)
	}
	if len(decision.RequestHeaders) > 0 {
		// Incoming metadata is a copy.
		incoming, _ := metadata.FromIncomingContext(ctx)
		if incoming == nil {
			incoming = metadata.MD{}
		}
		mark(decision, func(name string) { incoming.Delete(name) }, func(name, value string) { incoming.Append(name, value) })
		ctx = metadata.NewIncomingContext(ctx, incoming)
	}
	return context.WithValue(ctx, decisionKey{}, decision), slot, nil
}

// limit decides a request, and returns the slots that it holds until its end, and its descriptors.
func (c *Client) limit(ctx context.Context, limits Limits, r Request) (*Slot, []CallOption, error) {
	if limits.Skip != nil && limits.Skip(r) {
		return nil, nil, errSkipped
	}
	var call []CallOption
	for _, keys := range append([][]KeySource{limits.Keys}, limits.More...) {
		descriptor, err := descriptorOf(keys, r)
		if errors.Is(err, errSkipped) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if limits.Cost != nil {
			descriptor = descriptor.Cost(limits.Cost(r))
		}
		call = append(call, descriptor)
	}
	if len(call) == 0 {
		return nil, nil, errSkipped
	}
	slot, err := c.acquire(ctx, c.request(1, append(slices.Clip(call), limits.Options...)))
	var refused *RequestError
	if errors.As(err, &refused) {
		// The value of a key is at fault, such as a value that is too long.
		return nil, nil, &badRequestError{refused.Message}
	}
	return slot, call, err
}

func (l *Limits) headers(decision Decision) http.Header {
	if l.LegacyHeaders {
		return decision.LegacyHeaders()
	}
	return decision.Headers()
}

// check panics on limits that no request can satisfy: they are a mistake of the program, found at its start.
func (l *Limits) check() {
	for _, keys := range append([][]KeySource{l.Keys}, l.More...) {
		if len(keys) == 0 {
			panic("tidegate: Limits without Keys; name at least one, such as Constant(\"route\", \"all\")")
		}
		for _, key := range keys {
			if key.entry == "" || key.read == nil || key.missing < Reject || key.missing > Shared {
				panic("tidegate: a key without entry, or without a choice of Reject, Allow and Shared")
			}
		}
	}
}

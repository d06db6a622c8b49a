package tidegate

import "time"

// Call is a call to a fake client; see [NewFake].
type Call struct {
	// Domain is the domain of the call.
	Domain string
	// Descriptors are the call's descriptors, with their costs.
	Descriptors []Descriptor
	// Cost is the number of hits of descriptors that have none of their own; 0 of [Client.Peek].
	Cost uint64
	// GivesBack is whether the hits are given back.
	GivesBack bool
}

// NewFake creates a client for tests of applications: it connects to nothing, and its calls return what a function decides.
//
//	client := tidegate.NewFake(func(tidegate.Call) tidegate.Decision { return tidegate.Denied(time.Minute) })
func NewFake(decide func(Call) Decision, options ...Option) *Client {
	// Nothing listens on port 0, and nothing connects to it.
	client, err := New("127.0.0.1:0", append([]Option{Domain("fake")}, options...)...)
	if err != nil {
		panic(err)
	}
	client.fake = decide
	return client
}

// Admitted returns the decision of a server that admits a request, with the statuses of its descriptors.
func Admitted(statuses ...Status) Decision { return newDecision(true, statuses) }

// Denied returns the decision of a server that denies a request until some time has passed; [Never] if no wait helps. By default its status
// is that of an unnamed limit of one request per second.
func Denied(retryAfter time.Duration, statuses ...Status) Decision {
	if len(statuses) == 0 {
		limit := Limit{Requests: 1, Unit: "second", Window: time.Second}
		statuses = []Status{{OverLimit: true, Limit: &limit, ResetAfter: retryAfter}}
	}
	decision := newDecision(false, statuses)
	decision.RetryAfter = retryAfter
	return decision
}

// Failed returns the decision of a policy for a request without an answer, with the name of a gRPC status code such as
// DEADLINE_EXCEEDED.
func Failed(policy Policy, code string) Decision {
	reason := FailedOpen
	if policy == FailClosed {
		reason = FailedClosed
	}
	return Decision{
		Allowed:        policy != FailClosed,
		Reason:         reason,
		ResetAfter:     Never,
		RetryAfter:     Never,
		Failure:        code,
		FailureMessage: "a fake client has no server",
	}
}

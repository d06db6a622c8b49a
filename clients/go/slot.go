package tidegate

import (
	"context"
	"sync"
)

// Slot is a resource: the slots of limits of requests in flight that a request holds until it is over, and the estimates of limits that
// reserve. It has the decision on the request; a denied request holds none.
type Slot struct {
	// Decision is the decision on the request.
	Decision

	client  *Client
	context context.Context
	request request

	mutex      sync.Mutex
	isReleased bool
}

// Acquire takes hits as [Client.Allow] does, and holds the slots of limits of requests in flight, and the estimates of costs that are known
// only at the end. No denial is kept. A call whose context ends keeps no slot.
//
//	slot, err := client.Acquire(ctx, tidegate.Key("user", "ann"))
//	defer slot.Release()
//	…
//	slot.Commit(tokens)
//
// The slot of a request that is not allowed, and the nil slot of a call with an error, release nothing.
func (c *Client) Acquire(ctx context.Context, options ...CallOption) (*Slot, error) {
	r := c.request(1, options)
	r.usesLocal = false
	return c.acquire(ctx, r)
}

func (c *Client) acquire(ctx context.Context, r request) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The end of a request is reported after its context has ended.
	detached := context.WithoutCancel(ctx)
	decided := make(chan acquired, 1)
	// The server may have admitted a call whose context ends: the call continues without its caller, so that its slot is released.
	go func() {
		var result acquired
		defer func() {
			result.panicked = recover()
			decided <- result
		}()
		decision, err := c.decide(detached, &r)
		if err != nil {
			result.err = err
			return
		}
		result.slot = &Slot{Decision: decision, client: c, context: detached, request: r}
	}()
	select {
	case result := <-decided:
		if result.panicked != nil {
			panic(result.panicked)
		}
		return result.slot, result.err
	case <-ctx.Done():
		go func() { (<-decided).slot.Release() }()
		return nil, ctx.Err()
	}
}

// acquired is the outcome of a call for slots.
type acquired struct {
	slot *Slot
	err  error
	// panicked is the value that an interceptor panicked with.
	panicked any
}

// Release releases the slots, and keeps the estimates charged; after another end it does nothing. A failure is logged, and the server ends
// them after max_hold.
func (s *Slot) Release() { s.end(nil) }

// Commit ends the request with its actual cost, instead of its estimates, and releases the slots. Zero gives the estimates back.
func (s *Slot) Commit(cost uint64) { s.end(&cost) }

// Cancel ends the request at no cost.
func (s *Slot) Cancel() { s.Commit(0) }

// ReleasePart releases cost hits of each slot. It ends the estimates, reduced by as many hits.
func (s *Slot) ReleasePart(cost uint64) {
	if s.isHeld(false) {
		s.send(Key("slot", s.Ticket).Cost(cost).GivingBack())
	}
}

// end ends the request with a cost, or with its estimate.
func (s *Slot) end(cost *uint64) {
	if !s.isHeld(true) {
		return
	}
	descriptor, estimate := Key("slot", s.Ticket), max(s.TicketCost, 1)
	switch {
	case cost == nil:
		s.send(descriptor.Cost(estimate))
	case *cost == 0:
		// Zero hits are a peek, which releases no slot.
		s.send(descriptor.Cost(estimate).GivingBack())
	default:
		s.send(descriptor.Cost(*cost))
	}
}

// Renew extends the hold of the slots and estimates to max_hold of their rules from now on, and returns whether all are still held. If not,
// the request must not go on. Without an answer the client's failure policy decides. It takes no hits. A slot without a ticket counts as
// held if its request is allowed; a slot that has ended does not.
//
// Call it each third of max_hold, so that a failed renewal can be repeated.
func (s *Slot) Renew(ctx context.Context) (bool, error) {
	if s == nil {
		return false, nil
	}
	if s.Ticket == "" {
		return s.Allowed, nil
	}
	if !s.isHeld(false) {
		return false, nil
	}
	r := s.client.request(1, nil)
	r.domain, r.usesLocal = s.request.domain, false
	for _, descriptor := range s.request.descriptors {
		// Zero hits are a peek, which renews nothing.
		r.descriptors = append(r.descriptors, descriptor.And("renew", s.Ticket).Cost(1))
	}
	decision, err := s.client.decide(ctx, &r)
	return err == nil && decision.Allowed, err
}

// releaseLater releases the slots without delaying the end of a request.
func (s *Slot) releaseLater() {
	if s != nil && s.Ticket != "" {
		go s.Release()
	}
}

// isHeld returns whether slots or estimates are held; if isEnd, it ends them.
func (s *Slot) isHeld(isEnd bool) bool {
	if s == nil || s.Ticket == "" {
		return false
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	wasReleased := s.isReleased
	s.isReleased = wasReleased || isEnd
	return !wasReleased
}

func (s *Slot) send(descriptor Descriptor) {
	r := s.client.request(1, nil)
	r.domain, r.usesLocal = s.request.domain, false
	r.descriptors = []Descriptor{descriptor}
	if _, err := s.client.decide(s.context, &r); err != nil {
		s.client.failures.log().WarnContext(s.context, "the end of a request is lost: its slots and estimates end after max_hold", "error", err)
	}
}

package tidegate

import (
	"context"
	"sync"
)

// Slot is a resource: the slots of limits of requests in flight that a request holds until it is over. It has the decision on the
// request; one that is denied holds none.
type Slot struct {
	// Decision is the decision on the request.
	Decision

	client  *Client
	context context.Context
	request request

	mutex      sync.Mutex
	isReleased bool
}

// Acquire takes hits as [Client.Allow] does, and holds the slots of limits of requests in flight. No denial is kept.
//
//	slot, err := client.Acquire(ctx, tidegate.Key("user", "ann"))
//	defer slot.Release()
//
// A slot of a request that is not allowed, or that is nil since there is an error, releases nothing.
func (c *Client) Acquire(ctx context.Context, options ...CallOption) (*Slot, error) {
	r := c.request(1, options)
	r.usesLocal = false
	decision, err := c.decide(ctx, &r)
	if err != nil {
		return nil, err
	}
	// The end of a request is reported after its context has ended.
	return &Slot{Decision: decision, client: c, context: context.WithoutCancel(ctx), request: r}, nil
}

// Release releases the slots; a second call does nothing. What fails is logged, and the server frees them after max_hold.
func (s *Slot) Release() { s.release(nil) }

// ReleasePart releases so many hits of each of the slots.
func (s *Slot) ReleasePart(cost uint64) { s.release(&cost) }

func (s *Slot) release(cost *uint64) {
	if s == nil || s.Ticket == "" {
		return
	}
	s.mutex.Lock()
	isReleased := s.isReleased
	s.isReleased = isReleased || cost == nil
	s.mutex.Unlock()
	if isReleased {
		return
	}
	r := s.client.request(1, nil)
	r.domain, r.usesLocal = s.request.domain, false
	descriptor := Key("slot", s.Ticket)
	if cost != nil {
		descriptor = descriptor.Cost(*cost).GivingBack()
	}
	r.descriptors = []Descriptor{descriptor}
	if _, err := s.client.decide(s.context, &r); err != nil {
		s.client.failures.log().WarnContext(s.context, "a slot was not released: the server frees it after max_hold", "error", err)
	}
}

package tidegate

import (
	"container/list"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"time"
)

// LocalLimit is a limit that is counted in this process: for requests without an answer ([WithFallback]), and in tests of applications
// ([Counting]). It counts exactly, by the algorithm of the server, and does not include other processes.
type LocalLimit struct {
	// Keys are the keys of a descriptor's entries, in order: each combination of values has a counter.
	Keys []string
	// Requests is the number of hits that fit into a window, or into the bucket.
	Requests uint32
	// Per is the length of the window, or the time until an empty bucket is full.
	Per time.Duration
	// FixedWindow is whether it counts in windows of the Unix epoch, instead of a token bucket.
	FixedWindow bool
	// Name is the name of the limit in decisions.
	Name string
}

// localCountersMax is the number of counters; beyond it the least recently used counter is dropped.
const localCountersMax = 100_000

// localLimits counts requests, all or nothing.
type localLimits struct {
	limits []LocalLimit
	// now is the time since the Unix epoch.
	now func() time.Duration

	mutex    sync.Mutex
	counters map[string]*list.Element
	// uses has the counters, the most recently used one first.
	uses list.List
}

// localCounter has the hits used of a limit, in units of one hit times Per, so that a bucket refills exactly.
type localCounter struct {
	identity string
	limit    *LocalLimit
	at       time.Duration
	used     big.Int
}

func newLocalLimits(limits []LocalLimit, now func() time.Duration) (*localLimits, error) {
	for _, limit := range limits {
		if len(limit.Keys) == 0 || limit.Requests == 0 || limit.Per <= 0 {
			return nil, fmt.Errorf("tidegate: the local limit %+v; use at least one key, and requests and a time above 0", limit)
		}
	}
	return &localLimits{limits: slices.Clone(limits), now: now, counters: map[string]*list.Element{}}, nil
}

// Counting returns a function for [NewFake] that counts as a server with these limits does. A test may set the time; [time.Now] if nil. It
// panics on impossible limits, which are a mistake of the test.
func Counting(now func() time.Time, limits ...LocalLimit) func(Call) Decision {
	if now == nil {
		now = time.Now
	}
	local, err := newLocalLimits(limits, func() time.Duration { return time.Duration(now().UnixNano()) })
	if err != nil {
		panic(err)
	}
	return func(call Call) Decision {
		return local.decide(&request{descriptors: call.Descriptors, cost: call.Cost, giveBack: call.GivesBack})
	}
}

// localCharge is the charge of a descriptor to a counter; the counter is nil if no limit applies to it.
type localCharge struct {
	counter   *localCounter
	cost      uint64
	givesBack bool
	isOver    bool
}

// decide decides a request, and takes or gives back its hits.
func (l *localLimits) decide(r *request) Decision {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := l.now()
	charges := make([]localCharge, len(r.descriptors))
	allowed := true
	for i := range r.descriptors {
		descriptor := &r.descriptors[i]
		charge := localCharge{l.counter(descriptor, now), r.costOf(descriptor), r.giveBack || descriptor.giveBack, false}
		if charge.counter != nil && !charge.givesBack {
			charge.isOver = charge.counter.excess(max(charge.cost, 1)).Sign() > 0
			allowed = allowed && !charge.isOver
		}
		charges[i] = charge
	}
	statuses := make([]Status, len(charges))
	for i, charge := range charges {
		statuses[i] = charge.settle(allowed)
	}
	for l.uses.Len() > localCountersMax {
		oldest := l.uses.Remove(l.uses.Back()).(*localCounter)
		delete(l.counters, oldest.identity)
	}
	return newDecision(allowed, statuses)
}

// counter returns the counter of a descriptor as of now; nil if no limit has its keys.
func (l *localLimits) counter(descriptor *Descriptor, now time.Duration) *localCounter {
	index := slices.IndexFunc(l.limits, func(limit LocalLimit) bool {
		return slices.EqualFunc(limit.Keys, descriptor.entries, func(key string, entry Entry) bool { return key == entry.Key })
	})
	if index < 0 {
		return nil
	}
	var identity strings.Builder
	fmt.Fprintf(&identity, "%d", index)
	for _, entry := range descriptor.entries {
		fmt.Fprintf(&identity, " %q", entry.Value)
	}
	element, isKnown := l.counters[identity.String()]
	if !isKnown {
		element = l.uses.PushFront(&localCounter{identity: identity.String(), limit: &l.limits[index], at: now})
		l.counters[identity.String()] = element
	}
	l.uses.MoveToFront(element)
	counter := element.Value.(*localCounter)
	counter.advance(now)
	return counter
}

// advance applies the time since the last use: a bucket refills, a window ends. An earlier time changes nothing.
func (c *localCounter) advance(now time.Duration) {
	now = max(c.at, now)
	if c.limit.FixedWindow {
		if now/c.limit.Per != c.at/c.limit.Per {
			c.used.SetInt64(0)
		}
	} else {
		refilled := new(big.Int).Mul(big.NewInt(int64(now-c.at)), big.NewInt(int64(c.limit.Requests)))
		c.take(refilled.Neg(refilled))
	}
	c.at = now
}

// take adds used units; negative units return them, down to zero.
func (c *localCounter) take(units *big.Int) {
	if c.used.Add(&c.used, units).Sign() < 0 {
		c.used.SetInt64(0)
	}
}

// units returns hits in units.
func (c *localCounter) units(hits uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(hits), big.NewInt(int64(c.limit.Per)))
}

// excess returns by how much cost more hits exceed the limit; negative if they fit.
func (c *localCounter) excess(cost uint64) *big.Int {
	after := new(big.Int).Add(&c.used, c.units(cost))
	return after.Sub(after, c.units(uint64(c.limit.Requests)))
}

// settle takes or gives back the hits, and returns the status.
func (charge localCharge) settle(allowed bool) Status {
	counter := charge.counter
	if counter == nil {
		return Status{ResetAfter: Never}
	}
	if units := counter.units(charge.cost); charge.givesBack {
		counter.take(units.Neg(units))
	} else if allowed {
		counter.take(units)
	}
	limit := counter.limit
	free := new(big.Int).Neg(counter.excess(0))
	return Status{
		OverLimit:  charge.isOver,
		Limit:      &Limit{Requests: limit.Requests, Name: limit.Name, Window: limit.Per},
		Remaining:  uint32(free.Div(free, big.NewInt(int64(limit.Per))).Uint64()),
		ResetAfter: counter.resetAfter(max(charge.cost, 1), charge.isOver),
	}
}

// resetAfter returns the wait of such a request over the limit, or the time until the whole limit is free.
func (c *localCounter) resetAfter(cost uint64, isOver bool) time.Duration {
	switch {
	case isOver && cost > uint64(c.limit.Requests):
		return Never
	case c.limit.FixedWindow && !isOver && c.used.Sign() == 0:
		return 0
	case c.limit.FixedWindow:
		return c.limit.Per - c.at%c.limit.Per
	}
	missing := new(big.Int).Set(&c.used)
	if isOver {
		missing = c.excess(cost)
	}
	requests := big.NewInt(int64(c.limit.Requests))
	// Rounded up: waiting that long is long enough.
	missing.Add(missing, requests).Sub(missing, big.NewInt(1))
	return time.Duration(missing.Div(missing, requests).Int64())
}

// WithFallback sets limits that count requests without an answer in this process; the policy decides requests that none of them limits.
// With a fallback, a service of ten processes admits up to ten times as much.
func WithFallback(limits ...LocalLimit) Option {
	return func(s *settings) { s.fallback = append(s.fallback, limits...) }
}

// fallBack returns the statuses of a request without an answer; none if no limit of the fallback applies to it.
func (c *Client) fallBack(r *request) []Status {
	if c.fallback == nil {
		return nil
	}
	statuses := c.fallback.decide(r).Statuses
	if !slices.ContainsFunc(statuses, func(status Status) bool { return status.Limit != nil }) {
		return nil
	}
	return statuses
}

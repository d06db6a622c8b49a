package tidegate

import (
	"sync"
	"sync/atomic"
	"time"
)

// permit is whether a call may be made.
type permit int

const (
	// permitNone: the breaker is open.
	permitNone permit = iota
	// permitCall: a call as usual.
	permitCall
	// permitProbe: the one call that tests whether the server answers again.
	permitProbe
)

// silentFor is the time without an answer after which one failure opens the breaker, if another address is in use.
const silentFor = 250 * time.Millisecond

// breaker opens after failuresMax failures in a row. Once it has been open for openFor, it lets one call through.
//
// Failures of overlapping calls count as one: a pause of this process, or a burst that the server answers late, proves no more than one
// late call. While another address is in use, one failure is enough if no call was answered for a quarter of a second: otherwise few calls
// would take long to find a server that hangs.
type breaker struct {
	failuresMax int
	openFor     time.Duration

	isOpen atomic.Bool
	// failures in a row, while closed.
	failures atomic.Int64
	// answeredAt is the time at which an answered call was sent: the last such call, or one shortly before.
	answeredAt atomic.Int64

	mutex sync.Mutex
	// failedAt is the time of the last failure that counted.
	failedAt  time.Duration
	probeAt   time.Duration
	isProbing bool
}

func (b *breaker) enter(now time.Duration) permit {
	if !b.isOpen.Load() {
		return permitCall
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch {
	case !b.isOpen.Load():
		return permitCall
	case b.isProbing || now < b.probeAt:
		return permitNone
	}
	b.isProbing = true
	return permitProbe
}

// succeeded records that a call, sent at some time, was answered.
func (b *breaker) succeeded(p permit, sent time.Duration) {
	// A load is cheaper than a store that all callers share.
	if sent-time.Duration(b.answeredAt.Load()) > silentFor/5 {
		b.answeredAt.Store(int64(sent))
	}
	if p == permitCall {
		if b.failures.Load() != 0 && !b.isOpen.Load() {
			b.failures.Store(0)
		}
		return
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.isProbing = false
	b.failures.Store(0)
	b.isOpen.Store(false)
}

// failed records a failure of a call that was sent at some time, and whether another address is in use.
func (b *breaker) failed(p permit, sent, now time.Duration, hasOther bool) {
	if b.failuresMax == 0 {
		return
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if p == permitProbe {
		b.isProbing = false
		b.probeAt = after(now, b.openFor)
		return
	}
	if b.isOpen.Load() || b.failures.Load() > 0 && sent < b.failedAt {
		return
	}
	b.failedAt = now
	isSilent := now-time.Duration(b.answeredAt.Load()) >= silentFor
	if b.failures.Add(1) >= int64(b.failuresMax) || hasOther && isSilent {
		b.probeAt = after(now, b.openFor)
		b.isOpen.Store(true)
	}
}

// abandoned records that the caller cancelled the call: neither a success nor a failure.
func (b *breaker) abandoned(p permit) {
	if p == permitProbe {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.isProbing = false
	}
}

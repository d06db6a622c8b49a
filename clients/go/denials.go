package tidegate

import (
	"container/list"
	"sync"
	"time"
)

// localDenials keeps denials until their reset, but no longer than a bound. When it is full, the least recently used denial is dropped.
//
// A kept denial answers only requests that the server would deny too, unless something ends the denial early: a reset, an override, other
// rules, hits that another process gives back. The bound limits how long that goes unnoticed.
type localDenials struct {
	max int
	// keptFor is the longest time.
	keptFor time.Duration

	mutex sync.Mutex
	kept  map[string]*list.Element
	// order has the kept denials, the most recently used first.
	order list.List
	// givenBack has the shapes for which hits were given back.
	givenBack map[string]struct{}
}

type keptDenial struct {
	identity    string
	costs       []uint64
	decision    Decision
	sent, until time.Duration
}

func newLocalDenials(maxKept int, keptFor time.Duration) *localDenials {
	if keptFor <= 0 {
		maxKept = 0
	}
	return &localDenials{
		max:       maxKept,
		keptFor:   keptFor,
		kept:      make(map[string]*list.Element),
		givenBack: make(map[string]struct{}),
	}
}

// find returns the denial of the request as of now, if it is kept.
func (l *localDenials) find(r *request, now time.Duration) (Decision, bool) {
	identity := r.identity()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	element, isKept := l.kept[identity]
	if !isKept {
		return Decision{}, false
	}
	kept := element.Value.(*keptDenial)
	if now >= kept.until {
		l.order.Remove(element)
		delete(l.kept, identity)
		return Decision{}, false
	}
	for i := range r.descriptors {
		// A smaller request may fit where a larger request does not.
		if r.givesBack() || r.costOf(&r.descriptors[i]) < kept.costs[i] {
			return Decision{}, false
		}
	}
	l.order.MoveToFront(element)
	return kept.decision.after(now - kept.sent), true
}

// keep keeps a denial, until its reset at most, counted from the moment its call was sent.
func (l *localDenials) keep(r *request, decision Decision, sent time.Duration) {
	if l.max == 0 || decision.RetryAfter <= 0 || r.givesBack() {
		return
	}
	for i := range decision.Statuses {
		// Another quota may admit sooner, a request with more time may be queued, and a slot may be released.
		if decision.Statuses[i].OverLimit && decision.Statuses[i].Mode != "" {
			return
		}
	}
	costs := make([]uint64, len(r.descriptors))
	for i := range r.descriptors {
		costs[i] = r.costOf(&r.descriptors[i])
		// A request of 0 hits is denied if one hit does not fit: the denial does not apply to 0 hits themselves.
		if costs[i] == 0 {
			return
		}
	}
	identity := r.identity()
	kept := &keptDenial{identity, costs, decision, sent, after(sent, min(decision.RetryAfter, l.keptFor))}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.givenBack) > 0 {
		for i := range r.descriptors {
			if _, isGivenBack := l.givenBack[r.shape(&r.descriptors[i])]; isGivenBack {
				return
			}
		}
	}
	if element, isKept := l.kept[identity]; isKept {
		element.Value = kept
		l.order.MoveToFront(element)
		return
	}
	l.kept[identity] = l.order.PushFront(kept)
	if l.order.Len() > l.max {
		oldest := l.order.Back()
		delete(l.kept, l.order.Remove(oldest).(*keptDenial).identity)
	}
}

// endFor stops keeping denials for the keys of the descriptors that give back.
func (l *localDenials) endFor(r *request) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	isNew := false
	for i := range r.descriptors {
		if !r.giveBack && !r.descriptors[i].giveBack {
			continue
		}
		shape := r.shape(&r.descriptors[i])
		if _, isKnown := l.givenBack[shape]; !isKnown {
			l.givenBack[shape] = struct{}{}
			isNew = true
		}
	}
	if isNew {
		// Rare: once for each combination of keys.
		clear(l.kept)
		l.order.Init()
	}
}

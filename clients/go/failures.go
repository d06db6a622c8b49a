package tidegate

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
)

// logEvery is the least time between two records of repeated failures.
const logEvery = time.Minute

// failureLog logs failing calls, and that calls are answered again: the first failure, then one record a minute.
type failureLog struct {
	// logger is nil for the process's default, which may be set after the client is made.
	logger *slog.Logger
	// isFailing is whether the last call failed.
	isFailing atomic.Bool

	mutex sync.Mutex
	// loggedAt is the time of the last record, and since the number of failures after it.
	loggedAt time.Duration
	since    int
	// refusedAt is the time after which a refused request is logged again.
	refusedAt time.Duration
}

func (l *failureLog) log() *slog.Logger {
	if l.logger == nil {
		return slog.Default()
	}
	return l.logger
}

// failed records a decision without an answer.
func (l *failureLog) failed(ctx context.Context, decision Decision, now time.Duration) {
	l.mutex.Lock()
	l.since++
	isFirst := !l.isFailing.Swap(true)
	if !isFirst && now-l.loggedAt < logEvery {
		l.mutex.Unlock()
		return
	}
	failures := l.since
	l.loggedAt, l.since = now, 0
	l.mutex.Unlock()
	requests := "denied"
	if decision.Allowed {
		requests = "allowed"
	}
	message := fmt.Sprintf("no answer from the rate limit server (%s: %s); requests are %s",
		decision.Failure, decision.FailureMessage, requests)
	l.log().WarnContext(ctx, message, "failures", failures)
}

// refused records that the server refuses a request itself.
func (l *failureLog) refused(ctx context.Context, refusal *status.Status, now time.Duration) {
	l.mutex.Lock()
	isDue := l.refusedAt == 0 || now >= l.refusedAt
	if isDue {
		l.refusedAt = now + logEvery
	}
	l.mutex.Unlock()
	if isDue {
		l.log().WarnContext(ctx, fmt.Sprintf("the rate limit server refuses a request (%s: %s); middleware answers with 400",
			codeName(refusal.Code()), refusal.Message()))
	}
}

// ended records an answer.
func (l *failureLog) ended(ctx context.Context) {
	if !l.isFailing.Load() || !l.isFailing.Swap(false) {
		return
	}
	l.mutex.Lock()
	failures := l.since
	l.since = 0
	l.mutex.Unlock()
	l.log().InfoContext(ctx, "the rate limit server answers again", "failures", failures)
}

package tidegate

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Reason is the origin of a decision.
type Reason string

const (
	// Decided is the reason of decisions by the server.
	Decided Reason = "decided"
	// DeniedLocally is the reason of denials that repeat a denial by the server whose reset has not passed.
	DeniedLocally Reason = "denied_locally"
	// FailedOpen is the reason of requests allowed because no answer arrived.
	FailedOpen Reason = "failed_open"
	// FailedClosed is the reason of requests denied because no answer arrived.
	FailedClosed Reason = "failed_closed"
)

// Never is an absent reset or wait: no wait helps, or nothing limits the request.
const Never time.Duration = -1

// Status is the answer for one descriptor.
type Status struct {
	// OverLimit is whether the descriptor is over its limit.
	OverLimit bool
	// Limit is the tightest limit that applies; nil if nothing limits the descriptor.
	Limit *Limit
	// Remaining is the number of hits that are left.
	Remaining uint32
	// ResetAfter is the time until the limit resets, or Never.
	ResetAfter time.Duration
	// Mode is that of the rule; empty for most.
	Mode Mode
}

// Mode is a property of a rule that bears on its denials.
type Mode string

const (
	// Quota is the mode of rules with quota_mode: they deny only if all quotas of the request are over their limits.
	Quota Mode = "quota"
	// Queued is the mode of rules with max_wait or limits of requests in flight: the same request may be admitted before its reset.
	Queued Mode = "queued"
)

// Header is a header that the rules or the server add.
type Header struct{ Name, Value string }

// Decision is the answer for one request.
type Decision struct {
	// Allowed is whether the request is admitted.
	Allowed bool
	// Reason is the origin of the decision.
	Reason Reason
	// Limited is whether any limit applies. Without one the next four fields are zero values, the reset Never.
	Limited bool
	// Limit is the number of requests per unit of the governing limit.
	Limit uint32
	// Remaining is the number of hits left of the governing limit.
	Remaining uint32
	// Rule is the name of the governing limit; empty if it has none.
	Rule string
	// ResetAfter is the time until the governing limit resets, or Never.
	ResetAfter time.Duration
	// RetryAfter is the time after which a denied request would be admitted; Never if allowed, or if no wait helps.
	RetryAfter time.Duration
	// Ticket names the slots and estimates that the request holds; empty if it holds none. See [Client.Acquire].
	Ticket string
	// TicketCost is the number of hits of the largest slot or estimate; 0 without a ticket.
	TicketCost uint64
	// Statuses has one status for each descriptor, in order; empty without an answer.
	Statuses []Status
	// Failure is why no answer arrived: the name of a gRPC status code, or BREAKER_OPEN; empty if an answer arrived.
	Failure string
	// FailureMessage is the cause in words, such as a refused connection; empty if an answer arrived.
	FailureMessage string
	// RequestHeaders are what the rules add to the request.
	RequestHeaders []Header
	// ResponseHeaders are what the rules or the server add to the response.
	ResponseHeaders []Header
	// Body is the body that the rules give a denial; empty for the caller's own.
	Body []byte
}

// newDecision returns the decision of an answer.
func newDecision(allowed bool, statuses []Status) Decision {
	decision := Decision{
		Allowed:    allowed,
		Reason:     Decided,
		ResetAfter: Never,
		RetryAfter: Never,
		Statuses:   statuses,
	}
	var governing *Status
	if allowed {
		for i := range statuses {
			status := &statuses[i]
			if status.Limit != nil && (governing == nil || status.Remaining < governing.Remaining) {
				governing = status
			}
		}
	} else if governing = denying(statuses); governing != nil {
		decision.RetryAfter = governing.ResetAfter
	}
	if governing != nil && governing.Limit != nil {
		decision.Limited = true
		decision.Limit = governing.Limit.Requests
		decision.Rule = governing.Limit.Name
		decision.Remaining = governing.Remaining
		decision.ResetAfter = governing.ResetAfter
	}
	return decision
}

// quotasDeny returns whether the quotas among the statuses deny: all of them are over their limits.
func quotasDeny(statuses []Status) bool {
	for i := range statuses {
		if statuses[i].Mode == Quota && !statuses[i].OverLimit {
			return false
		}
	}
	return true
}

// denying returns the denying status with the longest wait. Of denying quotas, only the quota with the shortest wait counts: the request is
// admitted when the first quota resets.
func denying(statuses []Status) *Status {
	var longest, quota *Status
	for i := range statuses {
		status := &statuses[i]
		switch {
		case !status.OverLimit:
		case status.Mode != Quota:
			if longest == nil || isLonger(status.ResetAfter, longest.ResetAfter) {
				longest = status
			}
		case quota == nil || isLonger(quota.ResetAfter, status.ResetAfter):
			quota = status
		}
	}
	if quota == nil || !quotasDeny(statuses) {
		return longest
	}
	if longest == nil || isLonger(quota.ResetAfter, longest.ResetAfter) {
		return quota
	}
	return longest
}

// after returns the same denial as of a later time, as decided locally.
func (d Decision) after(elapsed time.Duration) Decision {
	d.Reason = DeniedLocally
	d.ResetAfter = less(d.ResetAfter, elapsed)
	d.RetryAfter = less(d.RetryAfter, elapsed)
	statuses := make([]Status, len(d.Statuses))
	for i, status := range d.Statuses {
		status.ResetAfter = less(status.ResetAfter, elapsed)
		statuses[i] = status
	}
	d.Statuses = statuses
	headers := make([]Header, len(d.ResponseHeaders))
	for i, header := range d.ResponseHeaders {
		headers[i] = header.after(elapsed)
	}
	d.ResponseHeaders = headers
	return d
}

// resetParameter is the time until a reset in a RateLimit header.
var resetParameter = regexp.MustCompile(`;t=[0-9]+`)

// unixTimeMin is the least number of seconds that is a time since 1970, as --response-headers x-unix sends it, and does not age. As a time
// until a reset it would be more than 31 years.
const unixTimeMin = 1_000_000_000

// after returns the header as of a later time, if it is a time until a reset.
func (h Header) after(elapsed time.Duration) Header {
	later := func(text string) string {
		if wait, err := strconv.ParseInt(text, 10, 64); err == nil && wait < unixTimeMin {
			return strconv.FormatInt(max(wait-int64(elapsed/time.Second), 0), 10)
		}
		return text
	}
	switch strings.ToLower(h.Name) {
	case "retry-after", "ratelimit-reset", "x-ratelimit-reset":
		h.Value = later(strings.TrimSpace(h.Value))
	case "ratelimit":
		h.Value = resetParameter.ReplaceAllStringFunc(h.Value, func(text string) string { return ";t=" + later(text[3:]) })
	}
	return h
}

// isLonger compares waits; Never is longer than any.
func isLonger(wait, than time.Duration) bool {
	if than == Never {
		return false
	}
	return wait == Never || wait > than
}

func less(wait, elapsed time.Duration) time.Duration {
	if wait == Never {
		return Never
	}
	return max(wait-elapsed, 0)
}

// seconds rounds up: waiting that long is long enough.
func seconds(wait time.Duration) string {
	whole := wait / time.Second
	if wait%time.Second > 0 {
		whole++
	}
	return strconv.FormatInt(int64(whole), 10)
}

// Headers returns the headers for the response: RateLimit, RateLimit-Policy and Retry-After. Headers of the server come last
// and replace those of the same name.
func (d Decision) Headers() http.Header {
	headers := make(http.Header, 3+len(d.ResponseHeaders))
	if applying := distinct(d.Statuses); len(applying) > 0 && !d.isMarked() {
		headers.Set("RateLimit-Policy", joined(applying, policy))
		shown := applying
		if !d.Allowed {
			shown = distinct(onlyDenying(d.Statuses))
		}
		if len(shown) > 0 {
			headers.Set("RateLimit", joined(shown, d.serviceLimit))
		}
	}
	if d.RetryAfter != Never {
		headers.Set("Retry-After", seconds(d.RetryAfter))
	}
	d.setOwn(headers)
	return headers
}

// LegacyHeaders returns the headers of [Decision.Headers], and X-RateLimit-Limit, -Remaining and -Reset.
func (d Decision) LegacyHeaders() http.Header {
	headers := d.Headers()
	if d.Limited && !d.isMarked() {
		headers.Set("X-RateLimit-Limit", strconv.FormatUint(uint64(d.Limit), 10))
		headers.Set("X-RateLimit-Remaining", strconv.FormatUint(uint64(min(d.Remaining, d.Limit)), 10))
		if d.ResetAfter != Never && !d.isQueuedAdmission() {
			headers.Set("X-RateLimit-Reset", seconds(d.ResetAfter))
		}
	}
	d.setOwn(headers)
	return headers
}

// isQueuedAdmission returns whether the governing limit of an admission may admit before its reset.
func (d Decision) isQueuedAdmission() bool {
	if !d.Allowed {
		return false
	}
	for _, status := range d.Statuses {
		if status.Limit != nil && status.Remaining == d.Remaining {
			return status.Mode == Queued
		}
	}
	return false
}

func (d Decision) setOwn(headers http.Header) {
	for _, header := range d.ResponseHeaders {
		headers.Set(header.Name, header.Value)
	}
}

// isMarked returns whether a limit marks the request instead of denying it. The client must not learn that.
func (d Decision) isMarked() bool { return d.Allowed && len(d.RequestHeaders) > 0 }

// onlyDenying returns the statuses that deny.
func onlyDenying(statuses []Status) []Status {
	withQuotas := quotasDeny(statuses)
	var found []Status
	for _, status := range statuses {
		if status.OverLimit && (withQuotas || status.Mode != Quota) {
			found = append(found, status)
		}
	}
	return found
}

// distinct returns the statuses that have a limit, each limit once with its tighter status.
func distinct(statuses []Status) []Status {
	var found []Status
next:
	for _, status := range statuses {
		if status.Limit == nil {
			continue
		}
		for i := range found {
			if isSame(*status.Limit, *found[i].Limit) {
				if isTighter(status, found[i]) {
					found[i] = status
				}
				continue next
			}
		}
		found = append(found, status)
	}
	return found
}

func isSame(one, other Limit) bool {
	return one.Name == other.Name && (one.Name != "" || one == other)
}

func isTighter(status, than Status) bool {
	switch {
	case status.OverLimit != than.OverLimit:
		return status.OverLimit
	case status.OverLimit:
		return isLonger(status.ResetAfter, than.ResetAfter)
	default:
		return status.Remaining < than.Remaining
	}
}

func joined(statuses []Status, item func(Status) string) string {
	items := make([]string, len(statuses))
	for i, status := range statuses {
		items[i] = item(status)
	}
	return strings.Join(items, ", ")
}

func policy(status Status) string {
	item := fmt.Sprintf("%s;q=%d", quoted(*status.Limit), status.Limit.Requests)
	// The draft's windows are whole seconds.
	if window := status.Limit.Window; window > 0 && window%time.Second == 0 {
		item += fmt.Sprintf(";w=%d", window/time.Second)
	}
	return item
}

// serviceLimit returns an item of RateLimit. An admission has no t: its reset is the time until the whole limit is free.
func (d Decision) serviceLimit(status Status) string {
	item := fmt.Sprintf("%s;r=%d", quoted(*status.Limit), min(status.Remaining, status.Limit.Requests))
	if !d.Allowed && status.ResetAfter != Never {
		item += ";t=" + seconds(status.ResetAfter)
	}
	return item
}

// quoted returns the limit's name as a structured String (RFC 9651).
func quoted(limit Limit) string {
	name := limit.Name
	if name == "" {
		name = limit.numbers()
	}
	var text strings.Builder
	text.WriteByte('"')
	for _, b := range []byte(name) {
		switch {
		case b == '"' || b == '\\':
			text.WriteByte('\\')
			text.WriteByte(b)
		case b >= 0x20 && b < 0x7f:
			text.WriteByte(b)
		default:
			fmt.Fprintf(&text, "%%%02X", b)
		}
	}
	text.WriteByte('"')
	return text.String()
}

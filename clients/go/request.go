package tidegate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Entry is a key with a value.
type Entry struct{ Key, Value string }

// Descriptor is the subject of a limit: entries, from the most general to the most particular. It is an argument of [Client.Allow] and the
// other calls; several descriptors are decided as one request.
type Descriptor struct {
	entries  []Entry
	cost     *uint64
	limit    *Limit
	giveBack bool
}

// Key returns a descriptor of one entry.
func Key(key, value string) Descriptor {
	return Descriptor{entries: []Entry{{key, value}}}
}

// Entries returns a descriptor of several entries.
func Entries(entries ...Entry) Descriptor {
	return Descriptor{entries: entries}
}

// Entries returns the descriptor's entries.
func (d Descriptor) Entries() []Entry { return slices.Clone(d.entries) }

// And returns the descriptor with one more entry.
func (d Descriptor) And(key, value string) Descriptor {
	d.entries = append(d.entries[:len(d.entries):len(d.entries)], Entry{key, value})
	return d
}

// Cost returns the descriptor with its own number of hits.
func (d Descriptor) Cost(hits uint64) Descriptor {
	d.cost = &hits
	return d
}

// Limit returns the descriptor with a limit of the request, instead of the rule's.
func (d Descriptor) Limit(requests uint32, unit string) Descriptor {
	d.limit = &Limit{Requests: requests, Unit: unit}
	return d
}

// GivingBack returns the descriptor with its hits given back instead of taken.
func (d Descriptor) GivingBack() Descriptor {
	d.giveBack = true
	return d
}

// CallOption is an argument of a call: a [Descriptor], or one of [Cost], [InDomain], [Timeout], [OnFailure] and
// [WithoutLocalDenials].
type CallOption interface{ apply(*request) }

type callOption func(*request)

func (option callOption) apply(r *request) { option(r) }

func (d Descriptor) apply(r *request) { r.descriptors = append(r.descriptors, d) }

// Cost sets the number of hits of a call, 1 if not given.
func Cost(hits uint64) CallOption { return callOption(func(r *request) { r.cost = hits }) }

// InDomain sets the domain of a call, instead of the client's.
func InDomain(domain string) CallOption { return callOption(func(r *request) { r.domain = domain }) }

// Timeout sets the time until the answer to a call counts as missing, instead of the client's.
func Timeout(timeout time.Duration) CallOption {
	return callOption(func(r *request) { r.timeout = timeout })
}

// OnFailure sets the policy of a call, instead of the client's.
func OnFailure(policy Policy) CallOption { return callOption(func(r *request) { r.policy = policy }) }

// WithoutLocalDenials sends a call to the server even if a kept denial applies.
func WithoutLocalDenials() CallOption {
	return callOption(func(r *request) { r.usesLocal = false })
}

// request is one call: its message, and its identity among kept denials.
type request struct {
	domain      string
	descriptors []Descriptor
	cost        uint64
	timeout     time.Duration
	policy      Policy
	usesLocal   bool
	giveBack    bool
}

var units = map[string]types.RateLimitUnit{
	"second": types.RateLimitUnit_SECOND, "minute": types.RateLimitUnit_MINUTE,
	"hour": types.RateLimitUnit_HOUR, "day": types.RateLimitUnit_DAY,
	"month": types.RateLimitUnit_MONTH, "year": types.RateLimitUnit_YEAR,
}

func (r *request) check() error {
	if r.domain == "" {
		return errors.New("tidegate: no domain; name it with Domain or InDomain")
	}
	if len(r.descriptors) == 0 {
		return errors.New("tidegate: no descriptor; name one, such as Key(\"api_key\", id)")
	}
	if !utf8.ValidString(r.domain) {
		return noUTF8("the domain", r.domain)
	}
	for i := range r.descriptors {
		descriptor := &r.descriptors[i]
		if len(descriptor.entries) == 0 {
			return errors.New("tidegate: a descriptor without entries; name at least one")
		}
		for _, entry := range descriptor.entries {
			switch {
			case entry.Key == "":
				return errors.New("tidegate: an entry without key; name the key of the rules")
			case !utf8.ValidString(entry.Key):
				return noUTF8("a key", entry.Key)
			}
		}
		if descriptor.limit != nil {
			if _, isKnown := units[descriptor.limit.Unit]; !isKnown {
				return fmt.Errorf("tidegate: the unit of a limit is %q; use second, minute, hour, day, month or year", descriptor.limit.Unit)
			}
		}
	}
	return nil
}

// noUTF8 returns the error of a text that cannot be sent.
func noUTF8(name, text string) error {
	return &RequestError{codes.InvalidArgument, fmt.Sprintf("%s is no UTF-8: %q", name, text)}
}

// call returns the request as fake clients receive it.
func (r *request) call() Call { return Call{r.domain, r.descriptors, r.cost, r.givesBack()} }

func (r *request) costOf(descriptor *Descriptor) uint64 {
	if descriptor.cost != nil {
		return *descriptor.cost
	}
	return r.cost
}

func (r *request) givesBack() bool {
	for i := range r.descriptors {
		if r.giveBack || r.descriptors[i].giveBack {
			return true
		}
	}
	return false
}

// identity returns a text that differs between requests that differ in more than costs.
func (r *request) identity() string {
	var buffer [128]byte
	text := appendText(buffer[:0], r.domain)
	for i := range r.descriptors {
		descriptor := &r.descriptors[i]
		text = binary.AppendUvarint(text, uint64(len(descriptor.entries)))
		for _, entry := range descriptor.entries {
			text = appendText(appendText(text, entry.Key), entry.Value)
		}
		if descriptor.limit != nil {
			text = append(text, 1)
			text = binary.AppendUvarint(text, uint64(descriptor.limit.Requests))
			text = appendText(text, descriptor.limit.Unit)
		} else {
			text = append(text, 0)
		}
	}
	return string(text)
}

// shape returns a text for the domain and the keys of a descriptor.
func (r *request) shape(descriptor *Descriptor) string {
	text := appendText(nil, r.domain)
	for _, entry := range descriptor.entries {
		text = appendText(text, entry.Key)
	}
	return string(text)
}

// appendText prefixes the length, so that different lists of texts make different bytes.
func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// peekMessage returns a message with the same descriptors that takes nothing.
func (r *request) peekMessage() *rls.RateLimitRequest {
	message := r.message()
	for _, descriptor := range message.Descriptors {
		descriptor.HitsAddend, descriptor.IsNegativeHits = wrapperspb.UInt64(0), false
	}
	return message
}

// message returns the message of an entry. Its value may be any bytes, which the generated code refuses in a string.
func (e Entry) message() *common.RateLimitDescriptor_Entry {
	if utf8.ValidString(e.Value) {
		return &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value}
	}
	sent := &common.RateLimitDescriptor_Entry{Key: e.Key}
	field := protowire.AppendTag(nil, 2, protowire.BytesType)
	sent.ProtoReflect().SetUnknown(protowire.AppendString(field, e.Value))
	return sent
}

func (r *request) message() *rls.RateLimitRequest {
	message := &rls.RateLimitRequest{
		Domain:      r.domain,
		Descriptors: make([]*common.RateLimitDescriptor, len(r.descriptors)),
	}
	for i := range r.descriptors {
		descriptor := &r.descriptors[i]
		sent := &common.RateLimitDescriptor{
			Entries:        make([]*common.RateLimitDescriptor_Entry, len(descriptor.entries)),
			IsNegativeHits: r.giveBack || descriptor.giveBack,
		}
		for j, entry := range descriptor.entries {
			sent.Entries[j] = entry.message()
		}
		// An explicit 0 is a peek; an absent cost is 1.
		if cost := r.costOf(descriptor); cost != 1 {
			sent.HitsAddend = wrapperspb.UInt64(cost)
		}
		if descriptor.limit != nil {
			sent.Limit = &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: descriptor.limit.Requests,
				Unit:            units[descriptor.limit.Unit],
			}
		}
		message.Descriptors[i] = sent
	}
	return message
}

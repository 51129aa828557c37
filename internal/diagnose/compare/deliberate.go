package compare

import (
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
)

// Deliberate is a difference between Istio and Moonsail that is on purpose. Two control planes of the same kind, or of unknown
// kinds, have none.
type Deliberate struct {
	Reason string `json:"reason"`
	Page   string `json:"page"` // of the documentation
}

// decided is a call with its outcomes on both sides.
type decided struct {
	call        *Call
	left, right *followed
}

// deliberate is a difference on purpose with how it shows.
type deliberate struct {
	Deliberate
	matches func(*decided, Change) bool
}

// Where the differences are documented.
const (
	trafficPage  = "docs/reference/differences.md#traffic"
	gatewaysPage = "docs/reference/differences.md#gateways"
)

// known has the differences on purpose. Either side may be Moonsail.
var known = []deliberate{
	{Deliberate{"Moonsail's sidecars use HTTP/2 between them: it costs less CPU for each request", trafficPage}, func(_ *decided, c Change) bool {
		return c.What == "protocol" && has(c, "http1", "http2")
	}},
	{Deliberate{"Istio answers 503 if a destination without a port has its only port under another number than the call; Moonsail uses the only port, as documented", trafficPage}, isOnlyPort},
	{Deliberate{"A gateway of Moonsail answers 421 for hosts of another server of the port, so that browsers repeat the request on another connection; Istio answers 404", gatewaysPage}, func(_ *decided, c Change) bool {
		return c.What == "answer" && has(c, "answers 404", "answers 421")
	}},
}

// isOnlyPort reports whether one side takes the port of the call for that of the destination, which has another one.
func isOnlyPort(d *decided, c Change) bool {
	_, port, err := net.SplitHostPort(d.call.To)
	if err != nil || c.What != "answer" || !has(c, "answers 503", outcome.Forwarded) {
		return false
	}
	refused, forwarded := d.left.Outcome["destination"], d.right.Outcome["destination"]
	if c.Left == outcome.Forwarded {
		refused, forwarded = forwarded, refused
	}
	host := strings.ReplaceAll(refused, ":"+port+" (no endpoints)", "")
	return host != refused && host == portText.ReplaceAllString(forwarded, "")
}

// portText is a port in a destination.
var portText = regexp.MustCompile(`:\d+`)

// has reports whether the two sides of a change have these texts, in any order.
func has(c Change, a, b string) bool {
	return c.Left == a && c.Right == b || c.Left == b && c.Right == a
}

// onPurpose returns why all changes of a call are on purpose; nil: some are not. The sides have different kinds.
func onPurpose(d *decided, changes []Change) *Deliberate {
	var out *Deliberate
	for _, c := range changes {
		i := slices.IndexFunc(known, func(k deliberate) bool { return k.matches(d, c) })
		if i < 0 {
			return nil
		}
		if out == nil {
			out = &known[i].Deliberate
		}
	}
	return out
}

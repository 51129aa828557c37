package compare

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// Call is a call that Run follows on both sides.
type Call struct {
	// Proxy is the NAME.NAMESPACE of the proxy that the call passes first: the caller's, or the gateway, or for
	// inbound calls the server's.
	Proxy string
	simulate.Call
}

// String returns the call without its proxy, for example "POST http://reviews.shop:9080/ x-user: anna".
func (c *Call) String() string {
	host := c.Host
	if host == "" {
		host = c.To
	}
	var b strings.Builder
	if c.Method != "" && c.Method != http.MethodGet {
		b.WriteString(c.Method + " ")
	}
	scheme := string(c.Protocol)
	if scheme == "" {
		scheme = string(simulate.HTTP)
	}
	switch c.Protocol {
	case simulate.TCP:
		b.WriteString(scheme + "://" + c.To)
	case simulate.TLS:
		b.WriteString(scheme + "://" + c.To)
		if c.SNI != "" && !c.Inbound {
			b.WriteString(" SNI " + c.SNI)
		}
	default:
		b.WriteString(scheme + "://" + host + c.Path)
	}
	if _, port, err := net.SplitHostPort(c.To); err == nil && c.Inbound && c.Protocol != simulate.TCP && c.Protocol != simulate.TLS {
		fmt.Fprintf(&b, " to port %s", port)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Headers)) {
		fmt.Fprintf(&b, " %s: %s", k, c.Headers[k])
	}
	if c.Inbound {
		switch {
		case c.Principal == stranger:
			b.WriteString(" with mutual TLS")
		case c.Principal != "":
			b.WriteString(" from " + c.Principal)
		case c.Protocol == simulate.HTTPS || c.Protocol == simulate.TLS:
			b.WriteString(" without a certificate")
		default:
			b.WriteString(" in plain text")
		}
		if c.From != "" {
			b.WriteString(" at " + c.From)
		}
	}
	if c.Dice > 0 {
		fmt.Fprintf(&b, " (beyond %g%%)", c.Dice)
	}
	return b.String()
}

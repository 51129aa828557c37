package simulate

import (
	"cmp"
	"maps"
	"net/netip"
	"strings"
)

// MeshCertificate is the name of the secret with a workload's own certificate.
const MeshCertificate = "default"

// Arrival returns a call as it reaches the sidecar of an endpoint, from the caller's proxy. r is what that proxy does with
// the call, u and e are where it sends the call. It is inside of TLS if the caller's cluster uses TLS for the endpoint.
// principal is the URI name in the caller's own certificate of the mesh, empty without one. The server sees it only if the
// cluster presents that certificate (ISTIO_MUTUAL), not with TLS of mode SIMPLE; of mode MUTUAL it sees another one.
func (c Call) Arrival(r *Result, u *Upstream, e *Endpoint, principal string) Call {
	c = c.withDefaults().forwarded(r, u)
	c.To, c.Inbound, c.Direct = e.Address, true, false
	if u.TLS == nil || e.Plain {
		return c
	}
	if c.Protocol == TCP || c.Protocol == TLS {
		c.Protocol = TLS
	} else {
		c.Protocol = HTTPS
	}
	c.SNI, c.ALPN, c.Principal = u.TLS.SNI, u.TLS.ALPN, u.TLS.Cert
	if c.SNI == autoSNI {
		c.SNI = nameIn(c.Host)
	}
	if u.TLS.Cert == MeshCertificate {
		c.Principal = principal
	}
	return c
}

// nameIn returns the host name of an authority. It returns "" for an IP address, which cannot be an SNI.
func nameIn(authority string) string {
	host, _ := splitPort(authority)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ""
	}
	return host
}

// forwarded returns a call as the proxy sends it to an upstream, without the TLS that it may add.
func (c Call) forwarded(r *Result, u *Upstream) Call {
	c.Path, c.Host = cmp.Or(r.Path, c.Path), cmp.Or(u.authority, r.Authority, c.Host)
	if c.Headers = c.ownHeaders(); u.request != nil { // the proxy reads requests
		c.Headers = maps.Clone(u.request)
	}
	if !r.EndsTLS {
		return c
	}
	switch c.Protocol {
	case HTTPS:
		c.Protocol = HTTP
	case TLS:
		c.Protocol = TCP
	}
	c.SNI, c.ALPN, c.Principal = "", nil, ""
	return c
}

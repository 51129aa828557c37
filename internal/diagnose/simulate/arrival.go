package simulate

// Arrival returns a call as it reaches the sidecar of an endpoint, from the caller's proxy. r is what that proxy does with
// the call, u and e are where it sends the call. It is inside of TLS if the caller's cluster uses TLS for the endpoint;
// principal is then the URI name in the caller's certificate, empty without one.
func (c Call) Arrival(r *Result, u *Upstream, e *Endpoint, principal string) Call {
	c = c.withDefaults() // those of the client's protocol
	c.Headers = c.ownHeaders()
	c.To, c.Inbound, c.Direct = e.Address, true, false
	if r.Path != "" {
		c.Path = r.Path
	}
	if r.Authority != "" {
		c.Host = r.Authority
	}
	if u.TLS == nil || e.Plain {
		return c
	}
	if c.Protocol == TCP || c.Protocol == TLS {
		c.Protocol = TLS
	} else {
		c.Protocol = HTTPS
	}
	c.SNI, c.ALPN, c.Principal = u.TLS.SNI, u.TLS.ALPN, principal
	return c
}

package model

import "fmt"

// ProxyHeaders are which headers proxies set: Istio's proxyHeaders. It is comparable; zero is what holds where
// nothing is said.
type ProxyHeaders struct {
	Said bool // else nothing is said
	// ServerSaid: responses have Server as their header, or with KeepServer what the application says.
	ServerSaid, KeepServer bool
	Server                 string // empty: Istio's
	// ClientCertificates is what becomes of X-Forwarded-Client-Cert in requests to a sidecar's application, in
	// Istio's words; empty: APPEND_FORWARD.
	ClientCertificates string
	Details            CertificateDetails
	NoRequestIDs       bool // requests get no x-request-id
	NoAttempts         bool // nor x-envoy-attempt-count
	NoDebug            bool // nothing of x-envoy-upstream-service-time and the like
	ForwardPort        bool // requests get x-forwarded-port
	ForwardHost        bool // and x-forwarded-host, where a route gives them another host
	KeepCase           bool // names of headers stay as they are written, on HTTP/1.1
}

// CertificateDetails are what X-Forwarded-Client-Cert says of the caller's certificate.
type CertificateDetails struct {
	Subject, Cert, Chain, DNS, URI bool
}

// DefaultCertificateDetails are Istio's.
var DefaultCertificateDetails = CertificateDetails{Subject: true, DNS: true, URI: true}

// ProxyHeadersOf reads proxyHeaders in JSON's form; nil: nothing is said. What is of another type than it should
// be counts as not said.
func ProxyHeadersOf(said map[string]any) ProxyHeaders {
	if said == nil {
		return ProxyHeaders{}
	}
	flag := func(field, name string, otherwise bool) bool {
		part, _ := said[field].(map[string]any)
		if v, ok := part[name].(bool); ok {
			return v
		}
		return otherwise
	}
	const details = "setCurrentClientCertDetails"
	out := ProxyHeaders{
		Said: true, KeepServer: flag("server", "disabled", false),
		NoRequestIDs: flag("requestId", "disabled", false), NoAttempts: flag("attemptCount", "disabled", false),
		NoDebug: flag("envoyDebugHeaders", "disabled", false), ForwardPort: flag("xForwardedPort", "enabled", false),
		ForwardHost: flag("xForwardedHost", "enabled", false),
		Details: CertificateDetails{
			Subject: flag(details, "subject", true), DNS: flag(details, "dns", true), URI: flag(details, "uri", true),
			Cert: flag(details, "cert", false), Chain: flag(details, "chain", false),
		},
	}
	out.KeepCase, _ = said["preserveHttp1HeaderCase"].(bool)
	if server, ok := said["server"].(map[string]any); ok {
		out.ServerSaid = true
		out.Server, _ = server["value"].(string)
	}
	if cert, _ := said["forwardedClientCert"].(string); cert != "UNDEFINED" {
		out.ClientCertificates = cert
	}
	return out
}

// CertificateDetails are those that hold.
func (h ProxyHeaders) CertificateDetails() CertificateDetails {
	if !h.Said {
		return DefaultCertificateDetails
	}
	return h.Details
}

// String is short, and tells them apart.
func (h ProxyHeaders) String() string {
	return fmt.Sprintf("headers=%t,%t,%s,%s,%v,%t,%t,%t,%t,%t,%t", h.ServerSaid, h.KeepServer, h.Server, h.ClientCertificates, h.Details,
		h.NoRequestIDs, h.NoAttempts, h.NoDebug, h.ForwardPort, h.ForwardHost, h.KeepCase)
}

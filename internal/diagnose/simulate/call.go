package simulate

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// Protocol is the protocol of a client's connection.
type Protocol string

// The protocols. HTTPS is HTTP inside of TLS. If no filter chain ends the TLS, it equals TLS.
const (
	HTTP  Protocol = "http"  // HTTP/1.1
	HTTP2 Protocol = "http2" // with prior knowledge
	GRPC  Protocol = "grpc"  // HTTP2 with gRPC's headers
	TCP   Protocol = "tcp"   // bytes that are neither HTTP nor TLS
	TLS   Protocol = "tls"
	HTTPS Protocol = "https"
)

// DefaultMethod returns the method of a request that names none.
func (p Protocol) DefaultMethod() string {
	if p == GRPC {
		return http.MethodPost
	}
	return http.MethodGet
}

// Call is one connection and, for HTTP, one request on it.
type Call struct {
	// To is the address that the client connects to, "IP:port".
	To string `yaml:"to"`
	// Inbound is set for calls from outside to the proxy's own workload.
	Inbound bool `yaml:"inbound,omitempty"`
	// Direct is set for calls to a listener that is bound to To, which nothing intercepts.
	Direct bool `yaml:"direct,omitempty"`
	// From is the client's address, "IP:port". The default is an address that no workload has.
	From string `yaml:"from,omitempty"`

	Protocol Protocol `yaml:"protocol,omitempty"` // default HTTP
	// Silent is set for TCP clients that wait for the server to speak first.
	Silent bool     `yaml:"silent,omitempty"`
	SNI    string   `yaml:"sni,omitempty"`
	ALPN   []string `yaml:"alpn,omitempty"`

	Method  string            `yaml:"method,omitempty"` // default: DefaultMethod
	Path    string            `yaml:"path,omitempty"`   // with query; default "/"
	Host    string            `yaml:"host,omitempty"`   // the authority; default: a header "host", or else To
	Headers map[string]string `yaml:"headers,omitempty"`

	// Principal is the name in the client's certificate, usually a URI ("spiffe://..."). It counts if a filter chain
	// ends mutual TLS. Empty: the client has no certificate.
	Principal string `yaml:"principal,omitempty"`
	// AssumeSigned counts tokens as signed if the resources lack the keys of their issuer: only a running mesh fetches those of
	// a jwksUri.
	AssumeSigned bool `yaml:"assumeSigned,omitempty"`
	// At is the time at which tokens are checked; zero: now.
	At time.Time `yaml:"at,omitempty"`

	// Dice is the random number, 0 to 100, that decides runtime fractions. A rule with a share of p percent
	// holds if Dice < p.
	Dice float64 `yaml:"dice,omitempty"`
}

// defaultSource is an address of TEST-NET-3, which no workload has.
const defaultSource = "203.0.113.9:40000"

// request is a call with its defaults and what the simulator finds out about it.
type request struct {
	Call
	to, from  netip.AddrPort
	scheme    string
	headers   map[string]string // lower-case names, including pseudo headers
	transport string            // result of the inspectors; "raw_buffer" if they find nothing
	sni       string
	alpn      []string
	secured   bool                         // a filter chain has ended the TLS
	hcm       *hcmv3.HttpConnectionManager // the connection manager that reads the request; nil: none does
	client    netip.Addr                   // as trusted proxies report it to hcm
	metadata  map[string]map[string]any    // metadata that filters have set, by filter
	offers    []string                     // upstream, by ALPN; nil: as the cluster configures
	meshALPN  bool                         // Istio's ALPN filter sets what is offered upstream
}

func (c Call) request() (*request, error) {
	c = c.withDefaults()
	to, err := netip.ParseAddrPort(c.To)
	if err != nil {
		return nil, fmt.Errorf("call.to: %w (want IP:port)", err)
	}
	from, err := netip.ParseAddrPort(c.From)
	if err != nil {
		return nil, fmt.Errorf("call.from: %w (want IP:port)", err)
	}
	switch c.Protocol {
	case HTTP, HTTP2, GRPC, TCP, TLS, HTTPS:
	default:
		return nil, fmt.Errorf("call.protocol %q: want http, http2, grpc, tcp, tls or https", c.Protocol)
	}
	r := &request{Call: c, to: to, from: from, scheme: "http", transport: "raw_buffer"}
	if c.Protocol == HTTPS {
		r.scheme = "https"
	}
	r.headers = c.requestHeaders(r.scheme)
	return r, nil
}

// Check returns why a call is invalid.
func (c Call) Check() error {
	_, err := c.request()
	return err
}

// WithAuthority returns a call without a header "host", which clients replace by the authority. Its value takes the place of Host.
func (c Call) WithAuthority() Call {
	for k, v := range c.Headers {
		if strings.EqualFold(k, "host") {
			c.Host, c.Headers = v, maps.Clone(c.Headers)
			delete(c.Headers, k)
			return c
		}
	}
	return c
}

func (c Call) withDefaults() Call {
	c = c.WithAuthority()
	set := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	if c.Protocol == "" {
		c.Protocol = HTTP
	}
	set(&c.Method, c.Protocol.DefaultMethod())
	set(&c.Path, "/")
	set(&c.Host, c.To)
	set(&c.From, defaultSource)
	return c
}

func (c Call) requestHeaders(scheme string) map[string]string {
	h := map[string]string{
		":method": c.Method, ":path": c.Path, ":authority": c.Host, ":scheme": scheme,
	}
	maps.Copy(h, c.ownHeaders())
	return h
}

// ownHeaders returns the headers of a call without pseudo headers, with lower-case names.
func (c Call) ownHeaders() map[string]string {
	h := map[string]string{}
	if c.Protocol == GRPC {
		h["content-type"], h["te"] = "application/grpc", "trailers"
	}
	for k, v := range c.Headers {
		h[strings.ToLower(k)] = v
	}
	return h
}

// isTLS reports whether the client's first bytes are a TLS handshake.
func (r *request) isTLS() bool { return r.Protocol == TLS || r.Protocol == HTTPS }

// isHTTP reports whether requests can be read after TLS has been ended.
func (r *request) isHTTP() bool { return r.Protocol != TCP && r.Protocol != TLS }

// path is :path without its query.
func (r *request) path() string {
	p, _, _ := strings.Cut(r.headers[":path"], "?")
	return p
}

// holds reports whether a share of numerator in denominator holds for the call's Dice.
func (r *request) holds(percent float64) bool { return r.Dice < percent }

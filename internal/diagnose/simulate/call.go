package simulate

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// Protocol is what a client speaks on its connection.
type Protocol string

// The protocols. HTTPS is HTTP inside of TLS: where no filter chain ends the TLS, it is
// the same as TLS.
const (
	HTTP  Protocol = "http"  // HTTP/1.1
	HTTP2 Protocol = "http2" // with prior knowledge
	GRPC  Protocol = "grpc"  // HTTP2 with grpc's headers
	TCP   Protocol = "tcp"   // bytes that are neither HTTP nor TLS
	TLS   Protocol = "tls"
	HTTPS Protocol = "https"
)

// Call is one connection, and for HTTP one request on it.
type Call struct {
	// To is the address that the client connects to, "IP:port".
	To string `yaml:"to"`
	// Inbound calls come from outside to the proxy's own workload.
	Inbound bool `yaml:"inbound,omitempty"`
	// Direct calls go to a listener that is bound to To; nothing intercepts them.
	Direct bool `yaml:"direct,omitempty"`
	// From is the client's address, "IP:port"; by default one that nobody else has.
	From string `yaml:"from,omitempty"`

	Protocol Protocol `yaml:"protocol,omitempty"` // http where empty
	// Silent TCP clients wait for the server to speak first.
	Silent bool     `yaml:"silent,omitempty"`
	SNI    string   `yaml:"sni,omitempty"`
	ALPN   []string `yaml:"alpn,omitempty"`

	Method  string            `yaml:"method,omitempty"` // GET where empty
	Path    string            `yaml:"path,omitempty"`   // with query; "/" where empty
	Host    string            `yaml:"host,omitempty"`   // the authority; To where empty
	Headers map[string]string `yaml:"headers,omitempty"`

	// Principal is the URI name in the client's certificate ("spiffe://..."), which counts
	// where a filter chain ends mutual TLS; empty: it has none.
	Principal string `yaml:"principal,omitempty"`
	// At is when tokens are looked at; zero: now.
	At time.Time `yaml:"at,omitempty"`

	// Dice is the lot, 0 to 100, that decides about runtime fractions: a rule with a
	// share of p percent holds where Dice < p.
	Dice float64 `yaml:"dice,omitempty"`
}

// defaultSource is an address of TEST-NET-3, which no workload has.
const defaultSource = "203.0.113.9:40000"

// request is a call with defaults filled in, and what is known of it on the way.
type request struct {
	Call
	to, from  netip.AddrPort
	scheme    string
	headers   map[string]string // lower-case names, pseudo headers included
	transport string            // what inspectors found; "raw_buffer" where nothing
	sni       string
	alpn      []string
	secured   bool                         // a filter chain has ended the TLS
	hcm       *hcmv3.HttpConnectionManager // that reads it; nil: none does
	metadata  map[string]map[string]any    // what filters have left, by filter
	offers    []string                     // upstream, by ALPN; nil: what the cluster says
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

func (c Call) withDefaults() Call {
	set := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	if c.Protocol == "" {
		c.Protocol = HTTP
	}
	method := "GET"
	if c.Protocol == GRPC {
		method = "POST"
	}
	set(&c.Method, method)
	set(&c.Path, "/")
	set(&c.Host, c.To)
	set(&c.From, defaultSource)
	return c
}

func (c Call) requestHeaders(scheme string) map[string]string {
	h := map[string]string{
		":method": c.Method, ":path": c.Path, ":authority": c.Host, ":scheme": scheme,
	}
	if c.Protocol == GRPC {
		h["content-type"], h["te"] = "application/grpc", "trailers"
	}
	for k, v := range c.Headers {
		h[strings.ToLower(k)] = v
	}
	return h
}

// isTLS tells whether the client's first bytes are a TLS handshake.
func (r *request) isTLS() bool { return r.Protocol == TLS || r.Protocol == HTTPS }

// isHTTP tells whether requests can be read, once TLS has been ended.
func (r *request) isHTTP() bool { return r.Protocol != TCP && r.Protocol != TLS }

// path is :path without its query.
func (r *request) path() string {
	p, _, _ := strings.Cut(r.headers[":path"], "?")
	return p
}

// holds tells whether a share of numerator in denominator holds for the call's lot.
func (r *request) holds(percent float64) bool { return r.Dice < percent }

package model

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// ConnectionSettingsFields are the fields of Istio's connectionSettings that have an effect, in JSON spelling, sorted. The
// others have none in istiod 1.31, either.
var ConnectionSettingsFields = []string{
	GlobalConnectionLimit, "http2InitialConnectionWindowSize", "http2InitialStreamWindowSize", "httpDrainTimeout", "httpHeadersWithUnderscoresAction",
	"httpIdleTimeout", "httpMaxConcurrentStreams", "httpMaxConnectionDuration", "httpMaxStreamDuration", "httpMergeSlashes",
	"httpPathWithEscapedSlashesAction", "httpRequestHeadersTimeout", "httpRequestTimeout", "httpStreamIdleTimeout",
	"listenerPerConnectionBufferLimitBytes", "profile",
}

// GlobalConnectionLimit is the field that bounds the connections of all clients of a proxy. The agent applies it, in Envoy's
// bootstrap: the control plane does not read it.
const GlobalConnectionLimit = "globalDownstreamConnectionLimit"

// ConnectionSettings bound the connections of a proxy's clients, and what their requests may have. Nil and empty values are
// unset: the mesh's defaults apply.
type ConnectionSettings struct {
	// Edge: gateways have Envoy's recommended values for the edge where a value is unset. See ForGateway.
	Edge        bool
	BufferLimit *uint32 // of a connection, in bytes; for gateways

	IdleTimeout, MaxDuration, DrainTimeout           *time.Duration // of connections
	RequestTimeout, HeadersTimeout                   *time.Duration // until requests, or their headers, have arrived
	StreamIdleTimeout, MaxStreamDuration             *time.Duration // of requests
	MaxConcurrentStreams                             *uint32
	InitialStreamWindowSize, InitialConnectionWindow *uint32

	Underscores    UnderscoresAction
	MergeSlashes   *bool
	EscapedSlashes EscapedSlashesAction
}

// UnderscoresAction is what happens to requests with header names that have underscores, in Istio's words.
type UnderscoresAction string

// The actions; empty: unset.
const (
	UnderscoresAllow  UnderscoresAction = "HEADERS_WITH_UNDERSCORES_ALLOW"
	UnderscoresReject UnderscoresAction = "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST"
	UnderscoresDrop   UnderscoresAction = "HEADERS_WITH_UNDERSCORES_DROP_HEADER"
)

// EscapedSlashesAction is what happens to requests whose path has escaped slashes, in Istio's words.
type EscapedSlashesAction string

// The actions; empty: unset.
const (
	EscapedSlashesKeep     EscapedSlashesAction = "KEEP_UNCHANGED"
	EscapedSlashesReject   EscapedSlashesAction = "REJECT_REQUEST"
	EscapedSlashesRedirect EscapedSlashesAction = "UNESCAPE_AND_REDIRECT"
	EscapedSlashesForward  EscapedSlashesAction = "UNESCAPE_AND_FORWARD"
)

// ProxyConnections are a proxy's own connectionSettings, which replace the mesh's as a whole; empty: unset. It is
// comparable: canonical JSON.
type ProxyConnections string

// maxProxyConnections bounds the settings, in bytes.
const maxProxyConnections = 4 << 10

// ProxyConnectionsOf decodes the settings; nil, or a text that is too long: unset.
func ProxyConnectionsOf(set map[string]any) ProxyConnections {
	if set == nil {
		return ""
	}
	set = maps.Clone(set)
	maps.DeleteFunc(set, func(field string, _ any) bool {
		return field == GlobalConnectionLimit || !slices.Contains(ConnectionSettingsFields, field)
	})
	text, err := json.Marshal(set)
	if err != nil || len(text) > maxProxyConnections {
		return ""
	}
	return ProxyConnections(text)
}

// Settings returns the settings; nil: unset.
func (p ProxyConnections) Settings() *ConnectionSettings {
	if p == "" {
		return nil
	}
	var set map[string]any
	_ = json.Unmarshal([]byte(p), &set) // it was made from JSON
	return ConnectionSettingsOf(set)
}

// ConnectionSettingsOf decodes connectionSettings. A value of a wrong type, or that Envoy would refuse, is unset.
func ConnectionSettingsOf(set map[string]any) *ConnectionSettings {
	out := &ConnectionSettings{Edge: set["profile"] == "EDGE"}
	number := func(field string, least uint32) *uint32 {
		n, err := strconv.ParseFloat(textOf(set[field]), 64)
		if err != nil || n < float64(least) || n > math.MaxInt32 {
			return nil
		}
		v := uint32(n)
		return &v
	}
	duration := func(field string) *time.Duration {
		text, _ := set[field].(string)
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return nil
		}
		return &d
	}
	const minWindow = 65535
	out.BufferLimit = number("listenerPerConnectionBufferLimitBytes", 0)
	out.IdleTimeout, out.MaxDuration, out.DrainTimeout = duration("httpIdleTimeout"), duration("httpMaxConnectionDuration"), duration("httpDrainTimeout")
	out.RequestTimeout, out.HeadersTimeout = duration("httpRequestTimeout"), duration("httpRequestHeadersTimeout")
	out.StreamIdleTimeout, out.MaxStreamDuration = duration("httpStreamIdleTimeout"), duration("httpMaxStreamDuration")
	out.MaxConcurrentStreams = number("httpMaxConcurrentStreams", 1)
	out.InitialStreamWindowSize, out.InitialConnectionWindow = number("http2InitialStreamWindowSize", minWindow), number("http2InitialConnectionWindowSize", minWindow)
	if merge, ok := set["httpMergeSlashes"].(bool); ok {
		out.MergeSlashes = &merge
	}
	switch a := UnderscoresAction(textOf(set["httpHeadersWithUnderscoresAction"])); a {
	case UnderscoresAllow, UnderscoresReject, UnderscoresDrop:
		out.Underscores = a
	}
	switch a := EscapedSlashesAction(textOf(set["httpPathWithEscapedSlashesAction"])); a {
	case EscapedSlashesKeep, EscapedSlashesReject, EscapedSlashesRedirect, EscapedSlashesForward:
		out.EscapedSlashes = a
	}
	return out
}

// textOf returns a text or number of JSON as a text; empty: it is neither.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

// ForGateway returns the settings of a gateway, with the values that profile EDGE has in Istio where others are unset.
func (s *ConnectionSettings) ForGateway() *ConnectionSettings {
	if s == nil || !s.Edge {
		return s
	}
	out := *s
	otherwise(&out.BufferLimit, 32<<10)
	otherwise(&out.IdleTimeout, time.Hour)
	otherwise(&out.StreamIdleTimeout, 5*time.Minute)
	otherwise(&out.RequestTimeout, 5*time.Minute)
	otherwise(&out.HeadersTimeout, time.Minute)
	otherwise(&out.MaxConcurrentStreams, 100)
	otherwise(&out.InitialStreamWindowSize, 64<<10)
	otherwise(&out.InitialConnectionWindow, 1<<20)
	otherwise(&out.MergeSlashes, true)
	if out.Underscores == "" {
		out.Underscores = UnderscoresReject
	}
	if out.EscapedSlashes == "" {
		out.EscapedSlashes = EscapedSlashesRedirect
	}
	return &out
}

// otherwise sets a value that is unset.
func otherwise[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

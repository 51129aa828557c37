package envoyext

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// Version is the Envoy that the table describes.
const Version = "1.40"

// extensionsText has a line for each extension: category, name, and the types of its
// configuration, separated by spaces. Deprecated names have no types.
//
//go:embed extensions.txt
var extensionsText string

// table is extensionsText, parsed. It does not change.
type table struct {
	types map[string]bool     // full names of types of configuration
	names map[string][]string // by category, in order
}

var parsed = sync.OnceValue(func() *table {
	t := &table{types: map[string]bool{}, names: map[string][]string{}}
	for line := range strings.Lines(extensionsText) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		t.names[f[0]] = append(t.names[f[0]], f[1])
		for _, typ := range f[2:] {
			t.types[typ] = true
		}
	}
	return t
})

// HasType reports whether Envoy has an extension that is configured by a type. name is the type's full name or its URL.
func HasType(name string) bool { return parsed().types[typeName(name)] }

// HasName reports whether Envoy has an extension of a category ("envoy.wasm.runtime").
func HasName(category, name string) bool { return slices.Contains(parsed().names[category], name) }

// typeName is the full name in a type URL.
func typeName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// Categories of filters.
const (
	HTTPFilters     = "envoy.filters.http"
	NetworkFilters  = "envoy.filters.network"
	ListenerFilters = "envoy.filters.listener"
)

// renamed are the names that filters had before Envoy 1.14, which old EnvoyFilters use.
var renamed = map[string]string{
	"envoy.buffer":                  "envoy.filters.http.buffer",
	"envoy.client_ssl_auth":         "envoy.filters.network.client_ssl_auth",
	"envoy.cors":                    "envoy.filters.http.cors",
	"envoy.csrf":                    "envoy.filters.http.csrf",
	"envoy.echo":                    "envoy.filters.network.echo",
	"envoy.ext_authz":               "envoy.filters.http.ext_authz",
	"envoy.fault":                   "envoy.filters.http.fault",
	"envoy.grpc_http1_bridge":       "envoy.filters.http.grpc_http1_bridge",
	"envoy.grpc_json_transcoder":    "envoy.filters.http.grpc_json_transcoder",
	"envoy.grpc_web":                "envoy.filters.http.grpc_web",
	"envoy.health_check":            "envoy.filters.http.health_check",
	"envoy.http_connection_manager": "envoy.filters.network.http_connection_manager",
	"envoy.ip_tagging":              "envoy.filters.http.ip_tagging",
	"envoy.listener.http_inspector": "envoy.filters.listener.http_inspector",
	"envoy.listener.original_dst":   "envoy.filters.listener.original_dst",
	"envoy.listener.original_src":   "envoy.filters.listener.original_src",
	"envoy.listener.proxy_protocol": "envoy.filters.listener.proxy_protocol",
	"envoy.listener.tls_inspector":  "envoy.filters.listener.tls_inspector",
	"envoy.lua":                     "envoy.filters.http.lua",
	"envoy.mongo_proxy":             "envoy.filters.network.mongo_proxy",
	"envoy.ratelimit":               "envoy.filters.network.ratelimit",
	"envoy.redis_proxy":             "envoy.filters.network.redis_proxy",
	"envoy.router":                  "envoy.filters.http.router",
	"envoy.squash":                  "envoy.filters.http.squash",
	"envoy.tcp_proxy":               "envoy.filters.network.tcp_proxy",
}

// Canonical is the name that a filter has today.
func Canonical(name string) string {
	if now, ok := renamed[name]; ok {
		return now
	}
	return name
}

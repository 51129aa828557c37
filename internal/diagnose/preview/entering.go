package preview

import (
	"net"
	"slices"
	"strconv"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/diagnose/sample"
	"github.com/moonsail/moonsail/internal/model"
)

// entering returns calls from outside to a router: at each listener one for each route of each of its virtual hosts, and one
// for each server name of connections whose requests it does not read.
func (c *comparison) entering(cl *client, operations []sample.Request) []Call {
	before, after := c.worldsOf(cl)
	var out []Call
	var ports []string
	for _, w := range []*world{after, before} {
		for _, a := range w.Outbound() {
			if _, port, err := net.SplitHostPort(a); err == nil && !slices.Contains(ports, port) {
				ports = append(ports, port)
			}
		}
	}
	for _, port := range ports {
		http, connections := entrancesAt(port, after, before)
		for _, e := range connections {
			out = append(out, Call{URL: e.url(port), Principal: e.principal})
		}
		if len(http) == 0 {
			continue
		}
		for _, domain := range domainsOf(before, after) {
			requests := append(c.routesTo(before, after, target{host: model.Host(domain)}, schemesOf(http)...), operations...)
			out = append(out, through(http, domain, port, requests)...)
		}
	}
	return out
}

// through returns calls of a domain with the requests that an entrance's scheme allows.
func through(http []entrance, domain, port string, requests []sample.Request) []Call {
	var out []Call
	for _, r := range requests {
		for _, e := range http {
			if r.Scheme != "" && r.Scheme != e.scheme {
				continue
			}
			e.name = domain
			call := requestCall(e.url(port), r)
			call.Principal = e.principal
			out = append(out, call)
		}
	}
	return out
}

// entrance is how a call gets to a filter chain of a router.
type entrance struct {
	scheme    string
	name      string // host, may have a wildcard
	principal string // in the client's certificate
}

func (e entrance) url(port string) string {
	return e.scheme + "://" + net.JoinHostPort(exact(model.Host(e.name)), port)
}

func schemesOf(all []entrance) []string {
	var out []string
	for _, e := range all {
		out = appendNew(out, e.scheme)
	}
	return out
}

// entrancesAt returns how calls get to the filter chains of a router's port: entrances without a name to those that read HTTP
// requests, and one for each server name of those that do not. A chain without server names gets one for any name. A chain that
// asks for certificates gets clients with and without one.
func entrancesAt(port string, worlds ...*world) (http, connections []entrance) {
	for _, w := range worlds {
		for _, l := range w.Listeners {
			if strconv.Itoa(int(l.GetAddress().GetSocketAddress().GetPortValue())) != port {
				continue
			}
			for _, chain := range slices.Concat(l.GetFilterChains(), defaultChain(l)) {
				for _, principal := range clientsOf(chain) {
					if readsHTTP(chain) {
						http = appendNew(http, entrance{schemeOf(chain), "", principal})
						continue
					}
					for _, e := range entrancesOf(chain) {
						e.principal = principal
						connections = appendNew(connections, e)
					}
				}
			}
		}
	}
	return http, connections
}

func defaultChain(l *listenerv3.Listener) []*listenerv3.FilterChain {
	if c := l.GetDefaultFilterChain(); c != nil {
		return []*listenerv3.FilterChain{c}
	}
	return nil
}

// clientsOf returns names in certificates of a chain's clients, "" for those without one.
func clientsOf(chain *listenerv3.FilterChain) []string {
	if name, asks := sample.ClientName(chain); asks {
		return []string{"", name}
	}
	return []string{""}
}

func schemeOf(chain *listenerv3.FilterChain) string {
	if chain.GetTransportSocket() != nil {
		return "https"
	}
	return "http"
}

func readsHTTP(chain *listenerv3.FilterChain) bool {
	return slices.ContainsFunc(chain.GetFilters(), func(f *listenerv3.Filter) bool {
		return f.GetTypedConfig().MessageIs((*hcmv3.HttpConnectionManager)(nil))
	})
}

func entrancesOf(chain *listenerv3.FilterChain) []entrance {
	m := chain.GetFilterChainMatch()
	switch {
	case len(m.GetServerNames()) > 0:
		var out []entrance
		for _, name := range m.GetServerNames() {
			out = append(out, entrance{scheme: "tls", name: name})
		}
		return out
	case chain.GetTransportSocket() != nil, m.GetTransportProtocol() == "tls":
		return []entrance{{scheme: "tls", name: "*"}}
	}
	return []entrance{{scheme: "tcp", name: "*"}}
}

func appendNew[T comparable](list []T, v T) []T {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

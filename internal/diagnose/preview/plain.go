package preview

import (
	"fmt"
	"net"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/sample"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// plainCallers returns the names of the workloads that have no sidecar on either side. All their calls are decided alike, but
// for policies about addresses.
func (c *comparison) plainCallers() []string {
	var out []string
	for name := range c.after.plain {
		if c.before.plain[name] != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// switched returns workloads with a sidecar on one side only, as clients whose calls may all be decided differently.
func (c *comparison) switched() []*client {
	var out []*client
	for _, sides := range [][2]*opened{{c.before, c.after}, {c.after, c.before}} {
		for _, p := range sides[1].proxies {
			if sides[0].plain[p.String()] != nil {
				w := sides[1].known(p)
				out = append(out, &client{proxy: p, diff: &resourceDiff{before: w, after: w}, renamed: true, names: []string{p.String()}})
			}
		}
	}
	return out
}

// plainCalls returns calls of workloads without sidecars to servers whose own resources differ.
func (c *comparison) plainCalls(servers map[model.Host]bool, operations []sample.Request) []Call {
	if len(c.plain) == 0 || len(servers) == 0 {
		return nil
	}
	if c.callsHost != nil {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf(
			"calls of workloads without a sidecar (%d) are not measured, and not tried: leave out --traffic to try them", len(c.plain)))
		return nil
	}
	p := c.after.plain[c.plain[0]]
	requests := append([]sample.Request{{Path: "/"}}, operations...)
	var out []Call
	for _, at := range c.targets(p, func(s *model.Service, _ *model.ServicePort) bool { return servers[s.Hostname] }) {
		for _, call := range at.calls(requests) {
			call.From = p.String()
			out = append(out, call)
		}
	}
	return out
}

// plainOutcome follows a call of a workload without a sidecar. It goes straight to the endpoints of the service.
func (o *opened) plainOutcome(call *Call, p *model.Proxy) (out result, err error) {
	u, _, err := call.parse()
	if err != nil {
		return out, err
	}
	sim, err := o.simulated(call, p, &world{})
	if err != nil {
		return out, err
	}
	_, host, _ := o.names.Resolve(p, u.Hostname())
	_, port, _ := net.SplitHostPort(sim.To)
	addresses := o.endpointsOf(host, port)
	if len(addresses) == 0 {
		return result{Outcome: outcome.Outcome{"answer": "no endpoint is known"}, fails: true}, nil
	}
	shares := map[string]float64{}
	var servers []string
	for _, address := range addresses {
		shares[o.nameAt(address)] += 100 / float64(len(addresses))
		text, refuses, err := o.plainServer(sim, address)
		if err != nil {
			return out, err
		}
		servers, out.fails = append(servers, text), out.fails || refuses
	}
	slices.Sort(servers)
	out.Outcome = outcome.Outcome{"answer": outcome.Forwarded, "encryption": "plain text"}
	out.Set("server", strings.Join(slices.Compact(servers), "; "))
	out.Set("endpoints", outcome.Shares(shares))
	return out, nil
}

// plainServer returns what happens to a call in plain text, or in the client's own TLS, at an endpoint.
func (o *opened) plainServer(sim simulate.Call, address string) (text string, refuses bool, err error) {
	p := o.proxyAt(address)
	if p == nil {
		return "the application itself", false, nil
	}
	w, err := o.world(p)
	if err != nil {
		return "", false, err
	}
	sim.To = address
	sim.Direct = caller.Binds(p)
	sim.Inbound = !sim.Direct
	text, refuses, err = o.server(sim, p, w, 0)
	if err != nil {
		return "", false, fmt.Errorf("at %s: %w", p, err)
	}
	return text, refuses, nil
}

// endpointsOf returns the addresses to which a service's host and port lead. The endpoints that sidecars get have them.
func (o *opened) endpointsOf(host model.Host, port string) []string {
	if o.assignments == nil {
		o.assignments = map[string]*endpointv3.ClusterLoadAssignment{}
		read := map[*world]bool{} // proxies that are alike share one
		for _, p := range o.proxies {
			w := o.known(p)
			if read[w] {
				continue
			}
			read[w] = true
			for _, a := range w.Endpoints {
				if o.assignments[a.GetClusterName()] == nil {
					o.assignments[a.GetClusterName()] = a
				}
			}
		}
	}
	n, _ := number(port)
	name := resourcename.Cluster{Direction: resourcename.Outbound, Port: n, Host: host}.String()
	var out []string
	for _, locality := range o.assignments[name].GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			if at.GetAddress() != "" && (e.GetHealthStatus() == corev3.HealthStatus_UNKNOWN || e.GetHealthStatus() == corev3.HealthStatus_HEALTHY) {
				out = append(out, net.JoinHostPort(at.GetAddress(), fmt.Sprint(at.GetPortValue())))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// callerOf returns the proxy or the workload without a sidecar that has a name; nil: there is none.
func (o *opened) callerOf(name string) (p *model.Proxy, plain bool) {
	if o.byName[name] == nil && o.plain[name] != nil {
		return o.plain[name], true
	}
	return o.caller(name), false
}

// plainProxies describes workloads without sidecars as their applications call: by name and address, without an identity.
func plainProxies(workloads []*model.Workload) map[string]*model.Proxy {
	out := map[string]*model.Proxy{}
	for _, w := range workloads {
		p := proxyOf(model.ProxySidecar, w)
		p.Identity = false
		out[p.String()] = p
	}
	return out
}

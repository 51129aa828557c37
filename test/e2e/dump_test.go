package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// holdings are the resources that an Envoy has or should have: "CDS name" -> message. Virtual hosts are separate, as in
// VHDS, and endpoints are their addresses.
type holdings map[string]proto.Message

// dump is an Envoy's /config_dump.
type dump struct {
	holdings
	unfinished []string // resources that warm, drain or have failed
}

func (e *bareEnvoy) dump(t *testing.T) dump {
	t.Helper()
	return e.read(t, e.text(t))
}

// text returns the dump unparsed.
func (e *bareEnvoy) text(t *testing.T) []byte {
	t.Helper()
	body, err := e.admin.ConfigDump(t.Context(), url.Values{"include_eds": {""}})
	require.NoError(t, err)
	return body
}

// read leaves the bootstrap out, which lists all of Envoy's extensions and would take most of the time. It parses only the
// parts, one for each type, that differ from the last dump.
func (e *bareEnvoy) read(t *testing.T, body []byte) dump {
	t.Helper()
	var all struct{ Configs []json.RawMessage }
	require.NoError(t, json.Unmarshal(body, &all))
	d, parts := dump{holdings: holdings{}}, map[string]dump{}
	for _, text := range all.Configs {
		if bytes.Contains(text[:min(len(text), 200)], []byte(".BootstrapConfigDump")) {
			continue
		}
		part, known := e.parts[string(text)]
		if !known {
			var packed anypb.Any
			require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, &packed))
			part.holdings = holdings{}
			part.add(t, unpack(t, &packed))
		}
		parts[string(text)] = part
		maps.Copy(d.holdings, part.holdings)
		d.unfinished = append(d.unfinished, part.unfinished...)
	}
	e.parts = parts
	// The dump lists the endpoints of all clusters; those of other clusters are part of the cluster.
	for name := range d.holdings {
		cluster, isEndpoints := strings.CutPrefix(name, "EDS ")
		c, _ := d.holdings["CDS "+cluster].(*clusterv3.Cluster)
		if isEndpoints && c.GetType() != clusterv3.Cluster_EDS {
			delete(d.holdings, name)
		}
	}
	return d
}

func (d *dump) add(t *testing.T, part proto.Message) {
	t.Helper()
	switch part := part.(type) {
	case *adminv3.ClustersConfigDump:
		for _, c := range part.DynamicActiveClusters {
			d.put(resource.Cluster, unpack(t, c.Cluster))
		}
		for _, c := range part.DynamicWarmingClusters {
			d.unfinished = append(d.unfinished, "warming cluster "+unpack(t, c.Cluster).(*clusterv3.Cluster).Name)
		}
	case *adminv3.ListenersConfigDump:
		for _, l := range part.DynamicListeners {
			d.listener(t, l)
		}
	case *adminv3.ScopedRoutesConfigDump:
		for _, list := range part.DynamicScopedRouteConfigs {
			for _, s := range list.ScopedRouteConfigs {
				d.put(resource.Scope, unpack(t, s))
			}
		}
	case *adminv3.RoutesConfigDump:
		for _, r := range part.DynamicRouteConfigs {
			d.put(resource.RouteConfig, unpack(t, r.RouteConfig))
		}
	case *adminv3.EndpointsConfigDump:
		for _, e := range part.DynamicEndpointConfigs {
			d.put(resource.Endpoints, unpack(t, e.EndpointConfig))
		}
	}
}

func (d *dump) listener(t *testing.T, l *adminv3.ListenersConfigDump_DynamicListener) {
	t.Helper()
	if l.ActiveState != nil {
		d.put(resource.Listener, unpack(t, l.ActiveState.Listener))
	}
	if l.WarmingState != nil {
		d.unfinished = append(d.unfinished, "warming listener "+l.Name)
	}
	if l.DrainingState != nil {
		d.unfinished = append(d.unfinished, "draining listener "+l.Name)
	}
	if l.ErrorState != nil {
		d.unfinished = append(d.unfinished, "refused listener "+l.Name+": "+l.ErrorState.Details)
	}
}

func unpack(t *testing.T, a *anypb.Any) proto.Message {
	t.Helper()
	m, err := a.UnmarshalNew()
	require.NoError(t, err)
	return m
}

// put adds a resource in a form that can be compared.
func (h holdings) put(typ resource.Type, m proto.Message) {
	switch m := m.(type) {
	case *clusterv3.Cluster:
		h["CDS "+m.Name] = withoutKeys(m)
	case *listenerv3.Listener:
		h["LDS "+m.Name] = m
	case *endpointv3.ClusterLoadAssignment:
		h["EDS "+m.ClusterName] = onlyAddresses(m)
	case *routev3.ScopedRouteConfiguration:
		h["SRDS "+m.Name] = m
	case *routev3.VirtualHost:
		h["VHDS "+m.Name] = m
	case *routev3.RouteConfiguration:
		shell := proto.Clone(m).(*routev3.RouteConfiguration)
		shell.VirtualHosts, shell.Vhds = nil, nil
		h["RDS "+m.Name] = shell
		for _, vh := range m.VirtualHosts {
			h["VHDS "+vh.Name] = vh
		}
	default:
		panic(fmt.Sprintf("%s %T", typ, m))
	}
}

var privateKeys = regexp.MustCompile(`"privateKey": ?\{[^}]*\}`)

// withoutKeys removes what Envoy hides: private keys and their file names.
func withoutKeys(c *clusterv3.Cluster) *clusterv3.Cluster {
	if c.TransportSocket == nil && len(c.TransportSocketMatches) == 0 {
		return c
	}
	shown := text(c)
	if !privateKeys.MatchString(shown) {
		return c
	}
	out := &clusterv3.Cluster{}
	if err := protojson.Unmarshal([]byte(privateKeys.ReplaceAllString(shown, `"privateKey":{}`)), out); err != nil {
		panic(err) // it was valid before
	}
	return out
}

// onlyAddresses keeps the addresses: Envoy's dump of endpoints is made from its hosts, and leaves out most else.
func onlyAddresses(a *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	var at []string
	for _, l := range a.Endpoints {
		for _, e := range l.LbEndpoints {
			s := e.GetEndpoint().GetAddress().GetSocketAddress()
			at = append(at, fmt.Sprintf("%s:%d/%d", s.GetAddress(), s.GetPortValue(), l.Priority))
		}
	}
	slices.Sort(at)
	return &endpointv3.ClusterLoadAssignment{ClusterName: strings.Join(slices.Compact(at), " ")}
}

// compiled returns what a proxy should have of these resources: endpoints of clusters that discover them, route
// configurations that listeners subscribe to.
func (r resources) compiled(t *testing.T) holdings {
	t.Helper()
	h := holdings{}
	spare := r.spare()
	for _, typ := range []resource.Type{resource.Cluster, resource.Endpoints, resource.Scope, resource.Listener, resource.RouteConfig} {
		for _, e := range r[typ] {
			if typ != resource.RouteConfig || !spare[e.Name] {
				h.put(typ, decode(t, e))
			}
		}
	}
	return h
}

// spare returns the route configurations that are split, and that no listener subscribes to as a whole.
func (r resources) spare() map[string]bool {
	out := map[string]bool{}
	for _, e := range r[resource.Scope] {
		out[routeshard.RouteConfig(e.Name)] = true
	}
	for _, l := range r[resource.Listener] {
		for _, rc := range l.RouteConfigs {
			delete(out, rc)
		}
	}
	return out
}

func decode(t *testing.T, e *resource.Encoded) proto.Message {
	t.Helper()
	var a anypb.Any
	require.NoError(t, proto.Unmarshal(e.Any(), &a))
	return unpack(t, &a)
}

// differences describes what the dump lacks, has in addition, or has with other content.
func (d dump) differences(want holdings) []string {
	out := slices.Clone(d.unfinished)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch got := d.holdings[name]; {
		case got == nil:
			out = append(out, "lacks "+name)
		case !proto.Equal(got, want[name]):
			out = append(out, fmt.Sprintf("has another %s:\n  got  %s\n  want %s", name, text(got), text(want[name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.holdings)) {
		if want[name] == nil {
			out = append(out, "has too much: "+name)
		}
	}
	return out
}

func text(m proto.Message) string {
	b, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func describe(list []server.ProxyState) string {
	b, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

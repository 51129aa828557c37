package derive

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// patched derives the groups of a proxy with some EnvoyFilters, and returns the patches in force.
func patched(p *model.Proxy, filters ...*model.EnvoyFilter) (outbound, inbound []string) {
	d := New(model.DefaultMesh(), 1)
	var changes []store.Change
	for _, f := range filters {
		changes = append(changes, store.Change{Key: f.Key, New: f})
	}
	d.Apply(changes)
	list := func(k GroupKey) []string {
		var out []string
		for _, p := range d.Open(k).patches() {
			out = append(out, fmt.Sprintf("%s/%s[%d]", p.Origin.Namespace, p.Origin.Name, p.Index))
		}
		return out
	}
	out, in := d.Index().Keys(p)
	return list(out), list(in)
}

func filterOf(namespace, name string, priority int32, patches ...model.EnvoyPatch) *model.EnvoyFilter {
	for i := range patches {
		patches[i].Index, patches[i].Target, patches[i].Operation = i, model.PatchCluster, model.PatchMerge
	}
	return &model.EnvoyFilter{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: namespace, Name: name}},
		Priority: priority, Patches: patches,
	}
}

// TestPatchOrder checks the order of patches: by priority, then the root namespace first, then by age and name.
func TestPatchOrder(t *testing.T) {
	out, in := patched(&model.Proxy{Type: model.ProxySidecar, Namespace: "a"},
		filterOf("a", "late", 1, model.EnvoyPatch{}),
		filterOf("a", "own", 0, model.EnvoyPatch{}, model.EnvoyPatch{Context: model.PatchInbound}, model.EnvoyPatch{Context: model.PatchGateway}),
		filterOf("istio-system", "z", 0, model.EnvoyPatch{Context: model.PatchOutbound}),
		filterOf("istio-system", "y", 0, model.EnvoyPatch{}),
		filterOf("a", "early", -1, model.EnvoyPatch{}),
		filterOf("b", "others", 0, model.EnvoyPatch{}),
	)
	require.Equal(t, []string{"a/early[0]", "istio-system/y[0]", "istio-system/z[0]", "a/own[0]", "a/late[0]"}, out)
	require.Equal(t, []string{"a/early[0]", "istio-system/y[0]", "a/own[0]", "a/own[1]", "a/late[0]"}, in)
}

// TestAddedOnce checks that of several resources of one name that EnvoyFilters add to a sidecar, the first outbound one counts.
func TestAddedOnce(t *testing.T) {
	add := func(name string, c model.PatchContext, resources ...string) *model.EnvoyFilter {
		f := filterOf("a", name, 0)
		for i, r := range resources {
			f.Patches = append(f.Patches, model.EnvoyPatch{Index: i, Operation: model.PatchAdd, Context: c, Name: r, Target: model.PatchCluster})
			f.Patches = append(f.Patches, model.EnvoyPatch{Index: i, Operation: model.PatchAdd, Context: c, Name: r, Target: model.PatchListener})
		}
		return f
	}
	d := New(model.DefaultMesh(), 1)
	in := add("in", model.PatchInbound, "both", "inbound", "everywhere")
	in.Priority = -1
	for _, f := range []*model.EnvoyFilter{in, add("any", model.PatchAnywhere, "everywhere"), add("out", model.PatchOutbound, "both"), add("late", model.PatchOutbound, "both"), add("gateway", model.PatchGateway, "inbound")} {
		put(d, nil, f)
	}
	outbound, inbound := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "a"})
	names := func(d *Delta) (out []string) {
		for name, c := range d.Clusters {
			if c != nil && c.Added != nil {
				out = append(out, "cluster "+name+" of "+c.Added.Origin.Name)
			}
		}
		for name, l := range d.Listeners {
			if l != nil && l.Added != nil {
				out = append(out, "listener "+name+" of "+l.Added.Origin.Name)
			}
		}
		return out
	}
	require.ElementsMatch(t, []string{
		"cluster both of late", "listener both of late", "cluster everywhere of any", "listener everywhere of any",
	}, names(d.Open(outbound)))
	require.ElementsMatch(t, []string{"cluster inbound of in", "listener inbound of in"}, names(d.Open(inbound)))
	require.ElementsMatch(t, []string{
		"cluster inbound of in", "listener inbound of in", "cluster everywhere of in", "listener everywhere of in",
	}, names(put(d, add("any", model.PatchAnywhere), nil).Deltas[inbound]), "the inbound ones are out once nothing else adds them")
}

// TestPatchesForSomeProxies checks selection by version, by the node's metadata and by labels. Proxies share groups as long as
// no EnvoyFilter uses these.
func TestPatchesForSomeProxies(t *testing.T) {
	old := &model.Proxy{Type: model.ProxySidecar, Namespace: "a", IstioVersion: "1.8.3", Labels: map[string]string{"app": "x"}}
	now := &model.Proxy{Type: model.ProxySidecar, Namespace: "a", IstioVersion: "1.31.1", Metadata: map[string]string{"TEAM": "blue"}}
	d := New(model.DefaultMesh(), 1)
	a, _ := d.Index().Keys(old)
	b, _ := d.Index().Keys(now)
	require.Equal(t, a, b)

	byVersion := filterOf("a", "v", 0, model.EnvoyPatch{ProxyVersion: regexp.MustCompile(`^1\.8.*`)})
	byMetadata := filterOf("a", "m", 0, model.EnvoyPatch{ProxyMetadata: map[string]string{"TEAM": "blue"}})
	byLabel := filterOf("a", "l", 0, model.EnvoyPatch{})
	byLabel.Selector = map[string]string{"app": "x"}
	several := &model.Proxy{Type: model.ProxySidecar, Namespace: "a", IstioVersion: "1.31.1", Metadata: map[string]string{"REGIONS": "us,TEAM=blue&TEAM=blue"}}
	bySeveral := filterOf("a", "s", 0, model.EnvoyPatch{ProxyMetadata: several.Metadata})
	for proxy, want := range map[*model.Proxy][]string{old: {"a/l[0]", "a/v[0]"}, now: {"a/m[0]"}, several: {"a/s[0]"}} {
		out, in := patched(proxy, byVersion, byMetadata, byLabel, bySeveral)
		require.Equal(t, want, out)
		require.Equal(t, want, in)
	}
}

// TestPatchesReachTheirGroupsAlone checks that a changed EnvoyFilter derives nothing for workloads that it does not select,
// and only what it concerns for the others.
func TestPatchesReachTheirGroupsAlone(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	d.Apply([]store.Change{changeOf(&model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: "x"}},
		Hostname: "x.a.svc.cluster.local", Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
	})})
	inA, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "a"})
	inB, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "b"})
	d.Open(inA)
	d.Open(inB)
	f := filterOf("a", "f", 0, model.EnvoyPatch{})
	f.Patches[0].Target = model.PatchHTTPFilter
	deltas := d.Apply([]store.Change{changeOf(f)}).Deltas
	require.Contains(t, deltas, inA)
	require.NotContains(t, deltas, inB)
	require.Contains(t, deltas[inA].Listeners, "0.0.0.0_80")
	require.NotContains(t, deltas[inA].Clusters, "outbound|80||x.a.svc.cluster.local")
	require.Empty(t, d.Apply([]store.Change{{Key: f.Key, Old: f, New: f}}).Deltas, "nothing has changed")
}

// TestPatchesReachAllTheirResources checks that a new EnvoyFilter, and its removal, derive all resources again that it can change.
func TestPatchesReachAllTheirResources(t *testing.T) {
	service := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: "x"}},
		Hostname: "x.a.svc.cluster.local", Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
	}
	gateway := &model.Gateway{
		Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "a", Name: "edge"}},
		Servers: []model.GatewayServer{{
			Port:  model.GatewayPort{Number: 80, Name: "http", Protocol: model.ProtocolHTTP},
			Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
		}},
	}
	routes := &model.VirtualService{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindVirtualService, Namespace: "a", Name: "x"}},
		Hosts: []model.Host{"www.example.com"}, Gateways: []string{"a/edge"},
		HTTP: []model.HTTPRoute{{Backends: []model.Backend{{Destination: model.Destination{Host: service.Hostname}, Weight: 1}}}},
	}
	clusters := func(d *Delta) []string { return slices.Sorted(maps.Keys(d.Clusters)) }
	listeners := func(d *Delta) []string { return slices.Sorted(maps.Keys(d.Listeners)) }
	routeConfigs := func(d *Delta) []string { return slices.Sorted(maps.Keys(d.RouteConfigs)) }
	virtualHosts := func(d *Delta) []string { return slices.Sorted(maps.Keys(d.VirtualHosts)) }
	for target, names := range map[model.PatchTarget]func(*Delta) []string{
		model.PatchListener: listeners, model.PatchFilterChain: listeners, model.PatchListenerFilter: listeners,
		model.PatchNetworkFilter: listeners, model.PatchHTTPFilter: listeners,
		model.PatchRouteConfig: routeConfigs, model.PatchVirtualHost: virtualHosts, model.PatchHTTPRoute: virtualHosts,
		model.PatchCluster: clusters,
	} {
		for _, typ := range []model.ProxyType{model.ProxySidecar, model.ProxyRouter} {
			t.Run(string(target)+" "+string(typ), func(t *testing.T) {
				d := New(model.DefaultMesh(), 1)
				d.Apply([]store.Change{changeOf(service), changeOf(gateway), changeOf(routes)})
				key, _ := d.Index().Keys(&model.Proxy{Type: typ, Namespace: "a", DNSDomain: "a.svc.cluster.local"})
				all := names(d.Open(key))
				require.NotEmpty(t, all)
				f := filterOf("a", "f", 0, model.EnvoyPatch{})
				f.Patches[0].Target = target
				require.Subset(t, names(d.Apply([]store.Change{changeOf(f)}).Deltas[key]), all)
				require.Subset(t, names(d.Apply([]store.Change{{Key: f.Key, Old: f}}).Deltas[key]), all)
			})
		}
	}
}

func changeOf(o model.Object) store.Change { return store.Change{Key: o.Metadata().Key, New: o} }

// patches are those in force according to the delta.
func (d *Delta) patches() []ir.Patch {
	if d.Patches == nil {
		return nil
	}
	return d.Patches.List
}

// TestTelemetryOfSelectedWorkloads checks that a Telemetry with a selector changes only the listeners of the workloads that it
// selects.
func TestTelemetryOfSelectedWorkloads(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	proxy := func(app string) *model.Proxy {
		return &model.Proxy{
			Type: model.ProxySidecar, Namespace: "a", IPs: []string{"10.0.0.1"}, Labels: map[string]string{"app": app},
			DNSDomain: "a.svc.cluster.local", Interception: model.InterceptRedirect,
		}
	}
	apply := func(o *model.Telemetry) Update {
		o.Kind, o.Name, o.Namespace = model.KindTelemetry, "t", "a"
		return d.Apply([]store.Change{{Key: o.Key, New: o}})
	}
	_, in := d.Index().Keys(proxy("x"))
	_, other := d.Index().Keys(proxy("y"))
	d.Open(in)
	d.Open(other)
	u := apply(&model.Telemetry{
		Selector: map[string]string{"app": "x"},
		Logging:  []model.LoggingRule{{Providers: []string{"envoy"}, Sides: model.BothSides}},
	})
	require.Contains(t, u.Deltas, in)
	require.NotContains(t, u.Deltas, other)
	require.True(t, u.Rekey(proxy("x")), "outbound groups depend on the label from now on")
	l := u.Deltas[in].Listeners["virtualInbound"]
	require.Len(t, l.Default.TCP.Telemetry.Logs, 1)
	require.Nil(t, l.Chains[0].TCP.Telemetry, "connections to the sidecar itself are not calls")

	out, _ := d.Index().Keys(proxy("x"))
	otherOut, _ := d.Index().Keys(proxy("y"))
	require.NotEqual(t, out, otherOut)
	require.Len(t, d.Open(out).Listeners["virtualOutbound"].Default.TCP.Telemetry.Logs, 1)
	require.Empty(t, d.Open(otherOut).Listeners["virtualOutbound"].Default.TCP.Telemetry.Logs)
}

// TestCollectorIsKept checks that a Sidecar that imports nothing keeps the cluster that receives spans.
func TestCollectorIsKept(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.Telemetry.Providers = append(mesh.Telemetry.Providers,
		model.Provider{Name: "otel", Kind: model.ProviderOpenTelemetry, Host: "otel.a.svc.cluster.local", Port: 4317})
	mesh.Telemetry.Tracing = []string{"otel"}
	d := New(mesh, 1)
	sidecar := &model.Sidecar{Egress: []model.EgressListener{{Hosts: []model.HostSelector{{Namespace: "~", Host: "*"}}}}}
	sidecar.Key = model.Key{Kind: model.KindSidecar, Namespace: "a", Name: "default"}
	d.Apply([]store.Change{{Key: sidecar.Key, New: sidecar}})
	out, _ := d.Index().Keys(&model.Proxy{
		Type: model.ProxySidecar, Namespace: "a", DNSDomain: "a.svc.cluster.local", Interception: model.InterceptRedirect,
	})
	require.NotContains(t, d.Open(out).Clusters, "outbound|4317||otel.a.svc.cluster.local", "there is no such service")
	svc := &model.Service{
		Hostname: "otel.a.svc.cluster.local", Ports: []model.ServicePort{{Name: "grpc", Number: 4317, Protocol: model.ProtocolGRPC}},
	}
	svc.Key = model.Key{Kind: model.KindService, Namespace: "a", Name: "otel"}
	delta := d.Apply([]store.Change{{Key: svc.Key, New: svc}}).Deltas[out]
	require.Contains(t, delta.Clusters, "outbound|4317||otel.a.svc.cluster.local")
	require.Equal(t, "outbound|4317||otel.a.svc.cluster.local", delta.Listeners["virtualOutbound"].Default.TCP.Telemetry.Tracing.Cluster)
	delta = d.Apply([]store.Change{{Key: svc.Key, Old: svc}}).Deltas[out]
	require.Nil(t, delta.Clusters["outbound|4317||otel.a.svc.cluster.local"])
	require.Nil(t, delta.Listeners["virtualOutbound"].Default.TCP.Telemetry.Tracing)
}

// TestGatewaysHaveSpansOfCalls checks that spans of gateways are those of servers, and that their calls have others.
func TestGatewaysHaveSpansOfCalls(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.Telemetry.Collector = &model.Provider{Kind: model.ProviderZipkin, Host: "z.a.svc.cluster.local", Port: 80}
	d := New(mesh, 1)
	svc := &model.Service{Hostname: "z.a.svc.cluster.local", Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}}
	svc.Key = model.Key{Kind: model.KindService, Namespace: "a", Name: "z"}
	d.Apply([]store.Change{changeOf(svc)})
	for kind, want := range map[model.ProxyType]bool{model.ProxyRouter: true, model.ProxySidecar: false} {
		out, _ := d.Index().Keys(&model.Proxy{Type: kind, Namespace: "a", IPs: []string{"10.0.0.1"}})
		d.Open(out)
		require.Equal(t, want, d.groups[out].filters.Telemetry.Tracing.UpstreamSpan, kind)
	}
}

// TestProvidersAreKept checks that a Sidecar that imports nothing keeps the clusters of services that inbound listeners call:
// those have no clusters of other services themselves.
func TestProvidersAreKept(t *testing.T) {
	const host, cluster = "p.obs.svc.cluster.local", "outbound|80||p.obs.svc.cluster.local"
	proxy := &model.Proxy{
		Type: model.ProxySidecar, Namespace: "a", IPs: []string{"10.0.0.1"}, Labels: map[string]string{"app": "x"},
		DNSDomain: "a.svc.cluster.local", Interception: model.InterceptRedirect,
	}
	telemetry := func(t *model.Telemetry) model.Object {
		t.Key = model.Key{Kind: model.KindTelemetry, Namespace: "a", Name: "t"}
		return t
	}
	policy := func(namespace string, selector map[string]string, action model.AuthorizationAction) model.Object {
		return &model.AuthorizationPolicy{
			Meta:   model.Meta{Key: model.Key{Kind: model.KindAuthorizationPolicy, Namespace: namespace, Name: "p"}},
			Action: action, Provider: "authz", Selector: selector, Rules: []model.AuthorizationRule{{}},
		}
	}
	for name, c := range map[string]struct {
		object model.Object
		kept   bool
	}{
		"traces of the server": {telemetry(&model.Telemetry{Tracing: []model.TracingRule{{Provider: "zipkin", Sides: model.SideServer}}}), true},
		"traces of the client": {telemetry(&model.Telemetry{Tracing: []model.TracingRule{{Provider: "zipkin", Sides: model.SideClient}}}), true},
		"no traces":            {telemetry(&model.Telemetry{Tracing: []model.TracingRule{{Provider: "zipkin", Sides: model.BothSides, Disabled: on()}}}), false},
		"logs of the server":   {telemetry(&model.Telemetry{Logging: []model.LoggingRule{{Providers: []string{"als"}, Sides: model.SideServer}}}), true},
		"authorizer":           {policy("a", map[string]string{"app": "x"}, model.AuthorizeCustom), true},
		"authorizer of all":    {policy("istio-system", nil, model.AuthorizeCustom), true},
		"another namespace":    {policy("b", nil, model.AuthorizeCustom), false},
		"no authorizer":        {policy("a", nil, model.AuthorizeDeny), false},
	} {
		t.Run(name, func(t *testing.T) {
			mesh := model.DefaultMesh()
			mesh.Telemetry.Providers = append(mesh.Telemetry.Providers,
				model.Provider{Name: "zipkin", Kind: model.ProviderZipkin, Host: host, Port: 80},
				model.Provider{Name: "als", Kind: model.ProviderHTTPLog, Host: host, Port: 80})
			mesh.Authorizers = map[string]*model.ExternalAuthorizer{"authz": {Name: "authz", Host: host, Port: 80}}
			sidecar := &model.Sidecar{Egress: []model.EgressListener{{Hosts: []model.HostSelector{{Namespace: "~", Host: "*"}}}}}
			sidecar.Key = model.Key{Kind: model.KindSidecar, Namespace: "a", Name: "default"}
			svc := &model.Service{Hostname: host, Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}}
			svc.Key = model.Key{Kind: model.KindService, Namespace: "obs", Name: "p"}
			d := New(mesh, 1)
			d.Apply([]store.Change{changeOf(sidecar), changeOf(svc)})
			out, _ := d.Index().Keys(proxy)
			require.NotContains(t, d.Open(out).Clusters, cluster)
			u := d.Apply([]store.Change{changeOf(c.object)})
			if now, _ := d.Index().Keys(proxy); now != out {
				u.Deltas = map[GroupKey]*Delta{out: d.Open(now)}
				out = now
			}
			if !c.kept {
				require.True(t, u.Deltas[out] == nil || u.Deltas[out].Clusters[cluster] == nil)
				return
			}
			require.NotNil(t, u.Deltas[out])
			require.Contains(t, u.Deltas[out].Clusters, cluster)
			require.Contains(t, u.Deltas[out].Clusters[cluster].Origins.Keys(), c.object.Metadata().Key)
			_, in := d.Index().Keys(proxy)
			for _, log := range d.Open(in).Listeners["virtualInbound"].Default.TCP.Telemetry.Logs {
				require.Equal(t, model.Host(host), log.Host)
				require.Equal(t, cluster, log.Cluster)
			}
			gone := d.Apply([]store.Change{{Key: c.object.Metadata().Key, Old: c.object}}).Deltas[out]
			require.Contains(t, gone.Clusters, cluster)
			require.Nil(t, gone.Clusters[cluster])
		})
	}
}

// TestGatewayKeepsAuthorizer checks that a router has the cluster of an authorizer whose Service is an alias if a policy selects
// the router: routes lead to what the alias stands for. Without the cluster, failOpen would let all requests pass.
func TestGatewayKeepsAuthorizer(t *testing.T) {
	const host, cluster = "p.obs.svc.cluster.local", "outbound|80||p.obs.svc.cluster.local"
	target := func(gateway string) model.Targets { return model.Targets{Targeted: true, Gateways: []string{gateway}} }
	for name, c := range map[string]struct {
		namespace string
		policy    model.AuthorizationPolicy
		kept      bool
	}{
		"target":                   {"a", model.AuthorizationPolicy{Targets: target("gw")}, true},
		"target of the root":       {"istio-system", model.AuthorizationPolicy{Targets: target("gw")}, false},
		"another target":           {"a", model.AuthorizationPolicy{Targets: target("other")}, false},
		"target without a Gateway": {"a", model.AuthorizationPolicy{Targets: model.Targets{Targeted: true}}, false},
		"selector":                 {"a", model.AuthorizationPolicy{Selector: map[string]string{"app": "x"}}, true},
		"selector of the root":     {"istio-system", model.AuthorizationPolicy{Selector: map[string]string{"app": "x"}}, true},
		"another selector":         {"a", model.AuthorizationPolicy{Selector: map[string]string{"app": "y"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			mesh := model.DefaultMesh()
			mesh.Authorizers = map[string]*model.ExternalAuthorizer{"authz": {Name: "authz", Host: host, Port: 80, FailOpen: true}}
			d := New(mesh, 1)
			service := func(name string, alias model.Host) store.Change {
				return changeOf(&model.Service{
					Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "obs", Name: name}},
					Hostname: model.Host(name + ".obs.svc.cluster.local"), ExternalName: alias,
					Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
				})
			}
			d.Apply([]store.Change{service("p", "real.obs.svc.cluster.local"), service("real", "")})
			out, _ := d.Index().Keys(&model.Proxy{
				Type: model.ProxyRouter, Namespace: "a", IPs: []string{"10.0.0.1"},
				Labels: map[string]string{"app": "x", model.LabelGatewayName: "gw"},
			})
			require.NotContains(t, d.Open(out).Clusters, cluster)
			p := c.policy
			p.Key = model.Key{Kind: model.KindAuthorizationPolicy, Namespace: c.namespace, Name: "p"}
			p.Action, p.Provider, p.Rules = model.AuthorizeCustom, "authz", []model.AuthorizationRule{{}}
			delta := d.Apply([]store.Change{changeOf(&p)}).Deltas[out]
			if !c.kept {
				require.True(t, delta == nil || delta.Clusters[cluster] == nil)
				return
			}
			require.NotNil(t, delta)
			require.Contains(t, delta.Clusters, cluster)
			gone := d.Apply([]store.Change{{Key: p.Key, Old: &p}}).Deltas[out]
			require.Contains(t, gone.Clusters, cluster)
			require.Nil(t, gone.Clusters[cluster])
		})
	}
}

func on() *bool {
	v := true
	return &v
}

// TestFetchedPlugins checks that agents get the plugins that select their workload, and that only listeners of agents with the
// module use it.
func TestFetchedPlugins(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	plugin := func(version string) *model.WasmPlugin {
		return &model.WasmPlugin{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "auth"}, ResourceVersion: version},
			Selector: map[string]string{"app": "web"}, Module: model.WasmModule{URL: "oci://example.com/auth", Always: true},
		}
	}
	d.Apply([]store.Change{{Key: plugin("1").Key, New: plugin("1")}})
	agent := &model.Proxy{Type: model.ProxySidecar, Extensions: true, Namespace: "shop", Labels: map[string]string{"app": "web", "b": "c"}, IPs: []string{"0.0.0.0"}}
	key, none := d.Index().Keys(agent)
	require.Zero(t, d.Open(none).Len())
	got := d.Open(key)
	name := "extenstions.istio.io/wasmplugin/shop.auth"
	require.Equal(t, 1, got.Len(), "plugins and nothing else")
	require.Equal(t, "oci://example.com/auth", got.Extensions[name].Module.URL)
	require.Equal(t, "1", got.Extensions[name].Version, "it is fetched again for each version")
	other := *agent
	other.Labels = map[string]string{"app": "db"}
	otherKey, _ := d.Index().Keys(&other)
	require.Zero(t, d.Open(otherKey).Len())

	require.Equal(t, "2", d.Apply([]store.Change{{Key: plugin("2").Key, Old: plugin("1"), New: plugin("2")}}).Deltas[key].Extensions[name].Version)
	delta := d.Apply([]store.Change{{Key: plugin("2").Key, Old: plugin("2")}}).Deltas[key]
	require.Contains(t, delta.Extensions, name)
	require.Nil(t, delta.Extensions[name])

}

// TestUnfetchedPlugins checks the report of plugins whose modules agents cannot fetch, and its end.
func TestUnfetchedPlugins(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	plugin := &model.WasmPlugin{
		Meta:   model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "auth"}},
		Module: model.WasmModule{URL: "oci://example.com/auth"},
	}
	p := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", IPs: []string{"10.0.0.1"}}
	old, _ := d.Index().Keys(p)
	p.Modules = true
	able, _ := d.Index().Keys(p)
	d.Open(old)
	d.Open(able)
	deltas := d.Apply([]store.Change{{Key: plugin.Key, New: plugin}}).Deltas
	require.Equal(t, []string{"WasmPlugin/shop/auth"}, deltas[old].Unfetched)
	require.Nil(t, deltas[able].Unfetched)
	deltas = d.Apply([]store.Change{{Key: plugin.Key, Old: plugin}}).Deltas
	require.NotNil(t, deltas[old].Unfetched)
	require.Empty(t, deltas[old].Unfetched)
}

// TestPullSecrets checks that credentials for registries go only to workloads of the plugin's namespace whose authenticated
// service account may read them.
func TestPullSecrets(t *testing.T) {
	plugin := func(ns string) *model.WasmPlugin {
		return &model.WasmPlugin{
			Meta:   model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: ns, Name: "auth"}},
			Module: model.WasmModule{URL: "oci://example.com/auth", PullSecret: "registry"},
		}
	}
	secret := func(ns string, readers ...string) *model.Secret {
		return &model.Secret{
			Meta:  model.Meta{Key: model.Key{Kind: model.KindSecret, Namespace: ns, Name: "registry"}},
			Login: model.NewPrivateKey("login of " + ns), Readers: append([]string{}, readers...),
		}
	}
	d := New(model.DefaultMesh(), 1)
	d.Apply([]store.Change{{Key: plugin("shop").Key, New: plugin("shop")}, {Key: secret("shop").Key, New: secret("shop", "web")}})
	login := func(account string, verified bool, ns string) string {
		p := &model.Proxy{Type: model.ProxySidecar, Extensions: true, Namespace: ns, ServiceAccount: account, Verified: verified, IPs: []string{"0.0.0.0"}}
		key, _ := d.Index().Keys(p)
		d.Close(key)
		for _, v := range d.Open(key).Extensions {
			return v.Login.PEM()
		}
		return "nothing"
	}
	require.Equal(t, "login of shop", login("web", true, "shop"))
	require.Empty(t, login("web", false, "shop"), "who does not show it")
	require.Empty(t, login("other", true, "shop"), "who may not read it")
	require.Equal(t, "nothing", login("web", true, "other"))

	root := d.Index().Mesh().RootNamespace
	d.Apply([]store.Change{{Key: plugin("shop").Key, Old: plugin("shop")}, {Key: plugin(root).Key, New: plugin(root)}, {Key: secret(root).Key, New: secret(root, "web")}})
	require.Empty(t, login("web", true, "shop"), "another namespace's Secret")

	d.Apply([]store.Change{{Key: plugin("shop").Key, New: plugin("shop")}})
	key, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Extensions: true, Namespace: "shop", ServiceAccount: "web", Verified: true, IPs: []string{"0.0.0.0"}})
	d.Open(key)
	delta := d.Apply([]store.Change{{Key: secret("shop").Key, Old: secret("shop", "web"), New: secret("shop")}}).Deltas[key]
	require.Empty(t, delta.Extensions["extenstions.istio.io/wasmplugin/shop.auth"].Login.PEM(), "a right that was withdrawn")
}

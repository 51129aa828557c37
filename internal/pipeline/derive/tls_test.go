package derive

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestBackendTLSNeedsAuthorities checks that a policy is in force with or without CAs. Without them connections fail.
func TestBackendTLSNeedsAuthorities(t *testing.T) {
	const cluster = "outbound|80||web.shop.svc.cluster.local"
	meta := func(kind model.Kind, name string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: "shop", Name: name}, ResourceVersion: "1"}
	}
	st, d := store.New(), New(model.DefaultMesh(), 1)
	apply := func(k model.Key, o model.Object) Update {
		_, changes := st.Apply([]store.Event{{Key: k, Object: o}})
		return d.Apply(changes)
	}
	service := &model.Service{
		Meta: meta(model.KindService, "web"), Hostname: "web.shop.svc.cluster.local", Resolution: model.ResolutionStatic,
		Ports: []model.ServicePort{{Number: 80, Name: "http", Protocol: model.ProtocolHTTP}},
	}
	first, second := meta(model.KindConfigMap, "first"), meta(model.KindConfigMap, "second")
	policy := &model.BackendTLSPolicy{
		Meta: meta(model.KindBackendTLSPolicy, "web"), Targets: []model.BackendTarget{{Host: service.Hostname}}, SNI: "web.example.com",
		CAs: []model.Key{first.Key, second.Key},
	}
	apply(service.Key, service)
	k, _ := d.Index().Keys(webProxy("default", "client", true))
	d.Open(k)
	tls := func(k model.Key, o model.Object, of GroupKey) *model.ClientTLS {
		t.Helper()
		c := apply(k, o).Deltas[of].Clusters[cluster]
		require.NotNil(t, c, "the cluster is another")
		return c.Policy.TLS
	}
	want := &model.ClientTLS{Mode: model.TLSSimple, SNI: "web.example.com", SubjectAltNames: []string{"web.example.com"}, CredentialName: "invalid://shop/web"}
	require.Equal(t, want, tls(policy.Key, policy, k))
	want.CredentialName = "configmap://shop/second"
	require.Equal(t, want, tls(second.Key, &model.Secret{Meta: second, CA: "second"}, k))
	want.CredentialName = "configmap://shop/first"
	require.Equal(t, want, tls(first.Key, &model.Secret{Meta: first, CA: "first"}, k))
	first.ResourceVersion = "2"
	require.Equal(t, want, tls(first.Key, &model.Secret{Meta: first, CA: "renewed"}, k), "the same, which is not sent")
	apply(second.Key, nil)
	want.CredentialName, first.ResourceVersion = "invalid://shop/web", "3"
	require.Equal(t, want, tls(first.Key, &model.Secret{Meta: first, CAProblem: "it is empty"}, k))
	require.Nil(t, tls(policy.Key, nil, k))
}

// TestTLSDefaults checks that the mesh's defaults reach existing clusters, servers of routers and listeners of Sidecars.
func TestTLSDefaults(t *testing.T) {
	_, d := ingressMesh(t, "shop", nil, &model.Gateway{
		Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "edge"}, ResourceVersion: "1"},
		Servers: []model.GatewayServer{{
			Port: model.GatewayPort{Number: 443, Name: "https", Protocol: model.ProtocolHTTPS}, Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
			TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{"web"}},
		}},
	}, &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}, ResourceVersion: "1"},
		Hostname: "web.shop.svc.cluster.local", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")}, Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 8443, TargetPort: 8443, Protocol: model.ProtocolHTTPS}}, Resolution: model.ResolutionStatic,
	})
	router := webProxy("shop", "web", true)
	router.Type = model.ProxyRouter
	edge, _ := d.Index().Keys(router)
	outbound, inbound := d.Index().Keys(webProxy("shop", "web", true))
	for _, k := range []GroupKey{edge, outbound, inbound} {
		d.Open(k)
	}
	config := &model.MeshConfig{
		Meta:        model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
		TLSDefaults: &model.TLSDefaults{MinVersion: "TLSv1_3", ECDHCurves: []string{"P-256"}},
	}
	deltas := put(d, nil, config).Deltas
	require.Same(t, config.TLSDefaults, deltas[outbound].Clusters["outbound|8443||web.shop.svc.cluster.local"].TLSDefaults)
	for _, k := range []GroupKey{edge, inbound} {
		ended := 0
		for _, l := range deltas[k].Listeners {
			chains := slices.Clone(l.Chains)
			if l.Default != nil {
				chains = append(chains, *l.Default)
			}
			for _, c := range chains {
				if c.TLS != nil && c.TLS.Server != nil {
					ended++
					require.Equal(t, "TLSv1_3", c.TLS.Server.MinVersion, l.Name)
					require.Equal(t, []string{"P-256"}, c.TLS.Server.ECDHCurves, l.Name)
				}
			}
		}
		require.NotZero(t, ended, k.String())
	}
}

// TestHandshakesEnd checks that routers bound the handshakes of their clients wherever they end TLS, as the mesh demands.
func TestHandshakesEnd(t *testing.T) {
	hosts := func(host model.Host) []model.HostSelector { return []model.HostSelector{{Namespace: "*", Host: host}} }
	gateway := &model.Gateway{
		Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "edge"}, ResourceVersion: "1"},
		Servers: []model.GatewayServer{{
			Port: model.GatewayPort{Number: 443, Name: "https", Protocol: model.ProtocolHTTPS}, Hosts: hosts("web.example.com"),
			TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{"web"}},
		}, {
			Port: model.GatewayPort{Number: 443, Name: "mesh", Protocol: model.ProtocolHTTPS}, Hosts: hosts("mesh.example.com"),
			TLS: &model.ServerTLS{Mode: model.ServerIstioMutual},
		}},
	}
	for name, limit := range map[string]time.Duration{"the default": model.DefaultHandshakeTimeout, "no limit": 0} {
		t.Run(name, func(t *testing.T) {
			mesh := model.DefaultMesh()
			if limit == 0 {
				mesh.HandshakeTimeout = 0
			}
			st, d := store.New(), New(mesh, 1)
			_, changes := st.Apply([]store.Event{{Key: gateway.Key, Object: gateway}})
			d.Apply(changes)
			router := webProxy("shop", "web", true)
			router.Type, router.Identity = model.ProxyRouter, true
			k, _ := d.Index().Keys(router)
			ends := 0
			for _, l := range d.Open(k).Listeners {
				for i := range l.Chains {
					require.NotNil(t, l.Chains[i].TLS)
					require.Equal(t, limit, l.Chains[i].HandshakeTimeout)
					ends++
				}
			}
			require.Equal(t, 2, ends)
		})
	}
}

// ingressMesh has a Sidecar of a namespace whose listener ends TLS with a Secret, where mutual TLS is
// switched off; and other objects.
func ingressMesh(t *testing.T, ns string, selector map[string]string, more ...model.Object) (*store.Store, *Deriver) {
	t.Helper()
	st, d := store.New(), New(model.DefaultMesh(), 1)
	meta := func(k model.Kind, ns string) model.Meta {
		return model.Meta{Key: model.Key{Kind: k, Namespace: ns, Name: "web"}, ResourceVersion: "1"}
	}
	sidecar := &model.Sidecar{Meta: meta(model.KindSidecar, ns), Selector: selector, Ingress: []model.IngressListener{{
		Port: model.SidecarPort{Number: 8443, Protocol: model.ProtocolHTTPS}, Endpoint: "127.0.0.1:8080",
		TLS: &model.ServerTLS{Mode: model.ServerMutual, CredentialNames: []string{"api-client"}},
	}, {Port: model.SidecarPort{Number: 9000, Protocol: model.ProtocolTCP}}}}
	off := &model.PeerAuthentication{Meta: meta(model.KindPeerAuthentication, "shop"), Mode: model.MTLSDisable}
	var events []store.Event
	for _, o := range append(more, sidecar, off) {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	_, changes := st.Apply(events)
	d.Apply(changes)
	return st, d
}

// TestSecretsOfSidecars checks that Secrets go to workloads of the Sidecar's namespace that it selects, if their service account
// may read them.
func TestSecretsOfSidecars(t *testing.T) {
	both := map[string]string{keyOfAPI: "key 1", casOfAPI: "ca"}
	web := map[string]string{"app": "web"}
	other := webProxy("shop", "web", true)
	other.Labels = map[string]string{"app": "other"}
	for _, tc := range []struct {
		name, namespace string // of the Sidecar
		selector        map[string]string
		proxy           *model.Proxy
		want            map[string]string
	}{
		{"the workload", "shop", web, webProxy("shop", "web", true), both},
		{"any workload of the namespace", "shop", nil, other, both},
		{"another service account", "shop", web, webProxy("shop", "other", true), map[string]string{casOfAPI: "ca"}},
		{"an unverified proxy", "shop", web, webProxy("shop", "web", false), map[string]string{}},
		{"it is not selected", "shop", web, other, map[string]string{}},
		{"another namespace", "shop", nil, webProxy("elsewhere", "web", true), map[string]string{}},
		{"the Sidecar is the root namespace's", "istio-system", nil, webProxy("shop", "web", true), map[string]string{}},
	} {
		st, d := ingressMesh(t, tc.namespace, tc.selector)
		putSecret(st, d, secretOf("1", []string{"web"}))
		require.Equal(t, tc.want, has(d, tc.proxy), tc.name)
	}
}

// TestASidecarThatChangesChangesItsSecrets checks the Secrets of open groups, and that none is left over.
func TestASidecarThatChangesChangesItsSecrets(t *testing.T) {
	st, d := ingressMesh(t, "shop", nil, secretOf("1", nil))
	k, _ := d.Index().Keys(webProxy("shop", "web", true))
	require.NotNil(t, d.Open(k).Secrets[keyOfAPI])
	old := st.Snapshot().Get(model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "web"}).(*model.Sidecar)
	now := *old
	now.ResourceVersion = "2"
	now.Ingress = []model.IngressListener{now.Ingress[0]}
	now.Ingress[0].TLS = nil
	_, changes := st.Apply([]store.Event{{Key: now.Key, Object: &now}})
	delta := d.Apply(changes).Deltas[k]
	require.Contains(t, delta.Secrets, keyOfAPI)
	require.Nil(t, delta.Secrets[keyOfAPI])
	require.Empty(t, d.groups[k].secrets)
	without, _ := d.Index().Keys(webProxy("shop", "web", true))
	require.Empty(t, without.Account, "service accounts do not split groups any more")
}

// TestIngressTLSEndsWhereMutualTLSIsOff checks that TLS of an ingress listener works only without mutual TLS: Envoy could not
// distinguish the two.
func TestIngressTLSEndsWhereMutualTLSIsOff(t *testing.T) {
	for mode, ends := range map[model.MTLSMode]bool{model.MTLSDisable: true, model.MTLSPermissive: false, model.MTLSStrict: false} {
		for _, identity := range []bool{true, false} {
			policy := &model.PeerAuthentication{
				Meta:     model.Meta{Key: model.Key{Kind: model.KindPeerAuthentication, Namespace: "shop", Name: "port"}, ResourceVersion: "1"},
				Selector: map[string]string{"app": "web"}, Ports: map[uint32]model.MTLSMode{8443: mode},
			}
			_, d := ingressMesh(t, "shop", nil, policy)
			p := webProxy("shop", "web", true)
			p.Identity, p.Interception = identity, model.InterceptRedirect
			_, k := d.Index().Keys(p)
			l := d.Open(k).Listeners["virtualInbound"]
			require.Equal(t, ends, endsFor(l, 8443), "%s, identity %t", mode, identity)
			if ends {
				require.Nil(t, l.Default, "what the port refuses would come to it")
				require.True(t, l.InspectTLS)
				require.Equal(t, []uint32{9000}, l.Uninspected, "a server there may speak first")
			}
			requireServed(t, k, l)
		}
	}
}

// endsFor reports whether a port accepts only the TLS of clients without a sidecar.
func endsFor(l *ir.Listener, port uint32) bool {
	found, others := false, false
	for i := range l.Chains {
		c := &l.Chains[i]
		if c.Match.DestinationPort != port {
			continue
		}
		if c.TLS != nil && !c.TLS.IsMesh() {
			found = c.HTTP != nil && c.HTTP.Outside && !c.HTTP.PeerTold && !c.HTTP.FromMesh
		} else {
			others = true
		}
	}
	return found && !others
}

// TestPeerHeader checks which proxies name the caller in a header: those with a certificate, whose agent has the modules.
// Virtual hosts that lead out of the mesh hide the header, and only these.
func TestPeerHeader(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	object := func(o model.Object) { d.Apply([]store.Change{{Key: o.Metadata().Key, New: o}}) }
	ports := []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}
	object(&model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: "web"}},
		Hostname: "web.a.svc.cluster.local", Ports: ports,
	})
	object(&model.ServiceEntry{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "api"}},
		Hosts: []model.Host{"api.example.com"}, Template: model.Service{External: true, Resolution: model.ResolutionDNS, Ports: ports},
	})
	for _, c := range []struct {
		name              string
		identity, modules bool
	}{{"agent", true, true}, {"no certificate", false, true}, {"no agent", true, false}} {
		t.Run(c.name, func(t *testing.T) {
			names := c.identity && c.modules
			out, _ := d.Index().Keys(&model.Proxy{
				Type: model.ProxySidecar, Namespace: "a", IPs: []string{"10.0.0.1"}, DNSDomain: "a.svc.cluster.local",
				Interception: model.InterceptRedirect, Identity: c.identity, Modules: c.modules,
			})
			state := d.Open(out)
			require.Equal(t, names, state.Listeners["0.0.0.0_80"].Chains[0].HTTP.Telemetry.SendsPeerHeader)
			require.False(t, state.VirtualHosts["80/web.a.svc.cluster.local:80"].RemovesPeerHeader)
			require.Equal(t, names, state.VirtualHosts["80/api.example.com:80"].RemovesPeerHeader)
			require.Equal(t, names, state.VirtualHosts["80/allow_any"].RemovesPeerHeader)
		})
	}
}

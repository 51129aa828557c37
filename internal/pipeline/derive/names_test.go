package derive

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

func serviceOf(name, version string, change func(*model.Service)) *model.Service {
	s := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: name}, ResourceVersion: version},
		Hostname: model.ResolveHost(name, "shop", "cluster.local"), Resolution: model.ResolutionStatic,
		Ports:     []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("10.1.0.0/16")},
	}
	if change != nil {
		change(s)
	}
	return s
}

func sliceOf(version string, members ...model.SliceEndpoint) *model.EndpointSlice {
	return &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "db-1"}, ResourceVersion: version},
		Service: "db", Members: members,
	}
}

func TestNames(t *testing.T) {
	st, d := store.New(), New(model.DefaultMesh(), 1)
	apply := func(objects ...model.Object) Update {
		var events []store.Event
		for _, o := range objects {
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := st.Apply(events)
		return d.Apply(changes)
	}
	headless := func(s *model.Service) { s.Headless, s.Addresses = true, nil }
	pod := func(ip string, ready bool) model.SliceEndpoint {
		return model.SliceEndpoint{Addresses: []string{ip}, Ready: ready, Serving: ready}
	}
	apply(serviceOf("web", "1", nil), serviceOf("db", "1", headless), serviceOf("plain", "1", func(s *model.Service) { s.Addresses = nil }),
		sliceOf("1", pod("10.2.0.1", true), pod("10.2.0.2", false), pod("10.2.0.3", true)),
		serviceOf("hidden", "1", func(s *model.Service) { s.Visibility = model.Visibility{Private: true, Namespaces: []string{"bank"}} }))

	client := &model.Proxy{Type: model.ProxySidecar, Names: true, Namespace: "shop", Name: "web-1.dns", IPs: []string{"0.0.0.0"}, DNSDomain: "shop.svc.cluster.local"}
	key, none := d.Index().Keys(client)
	require.Zero(t, d.Open(none).Len())
	got := d.Open(key)
	require.Len(t, got.Names, 2, "hosts without an address or visibility have no answer")
	require.Equal(t, got.Len(), len(got.Names), "only names")
	require.Equal(t, []string{"10.0.0.1", "fd00::1"}, got.Names["web.shop.svc.cluster.local"].Addresses, "an address range is not an answer")
	require.Equal(t, "web", got.Names["web.shop.svc.cluster.local"].Service)
	require.Equal(t, []string{"10.2.0.1", "10.2.0.3"}, got.Names["db.shop.svc.cluster.local"].Addresses, "Pods that are ready")

	delta := apply(sliceOf("2", pod("10.2.0.2", true))).Deltas[key]
	require.Equal(t, 1, delta.Len(), "one changed host is one small resource")
	require.Equal(t, []string{"10.2.0.2"}, delta.Names["db.shop.svc.cluster.local"].Addresses)
	delta = apply(sliceOf("3")).Deltas[key]
	require.Contains(t, delta.Names, "db.shop.svc.cluster.local")
	require.Nil(t, delta.Names["db.shop.svc.cluster.local"], "without endpoints the question is forwarded")

	named := func(ip, name string) model.SliceEndpoint {
		return model.SliceEndpoint{Addresses: []string{ip}, Ready: true, Serving: true, Pod: name}
	}
	six := sliceOf("1", named("fd00:2::1", "db-0"), named("fd00:2::2", "db-1"))
	six.Name = "db-6"
	delta = apply(sliceOf("4", named("10.2.0.1", "db-0"), named("10.2.0.2", "db-1")), six).Deltas[key]
	require.Equal(t, []string{"10.2.0.1", "10.2.0.2", "fd00:2::1", "fd00:2::2"}, delta.Names["db.shop.svc.cluster.local"].Addresses, "both families")
	require.Nil(t, apply(serviceOf("plain", "2", func(s *model.Service) { s.Addresses, s.Ports = nil, nil })).Deltas[key])
}

// TestNamesOfServiceEntries checks that proxies that capture DNS get the addresses of entries, of the families of their
// workload, and belong to a separate group as long as there are any.
func TestNamesOfServiceEntries(t *testing.T) {
	entry := func(version string, addresses ...netip.Prefix) *model.ServiceEntry {
		e := &model.ServiceEntry{Hosts: []model.Host{"db.example.com"}}
		e.Meta = model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "db"}, ResourceVersion: version}
		e.Template = model.Service{Resolution: model.ResolutionDNS, Addresses: addresses}
		e.Status = []model.HostAddress{{Host: "db.example.com", Address: netip.MustParseAddr("2001:2::5")}, {Host: "db.example.com", Address: netip.MustParseAddr("240.240.0.5")}}
		return e
	}
	for _, c := range []struct {
		off, auto bool
		ips       []string
		want      []string
	}{
		{ips: []string{"0.0.0.0"}, want: []string{"240.240.0.5"}},
		{ips: []string{"::"}, want: []string{"2001:2::5"}},
		{ips: []string{"0.0.0.0", "::"}, want: []string{"240.240.0.5", "2001:2::5"}},
		{ips: []string{"0.0.0.0"}, off: true},
		{ips: []string{"0.0.0.0"}, off: true, auto: true, want: []string{"240.240.0.5"}},
	} {
		mesh := model.DefaultMesh()
		mesh.AutoAddresses.Off = c.off
		st, d := store.New(), New(mesh, 1)
		apply := func(o model.Object) Update {
			_, changes := st.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
			return d.Apply(changes)
		}
		client := &model.Proxy{Type: model.ProxySidecar, Names: true, Namespace: "shop", IPs: c.ips, DNSCapture: true, AutoAllocate: c.auto}
		before, _ := d.Index().Keys(client)
		require.NotNil(t, apply(entry("1")).Rekey, "groups differ from now on")
		key, _ := d.Index().Keys(client)
		require.Equal(t, c.want != nil, key != before)
		got := d.Open(key).Names["db.example.com"]
		if c.want == nil {
			require.Nil(t, got)
			continue
		}
		require.Equal(t, c.want, got.Addresses)

		update := apply(entry("2", netip.MustParsePrefix("10.0.0.1/32")))
		require.NotNil(t, update.Rekey)
		after, _ := d.Index().Keys(client)
		require.Equal(t, before, after)
		require.Equal(t, []string{"10.0.0.1"}, update.Deltas[key].Names["db.example.com"].Addresses)
	}
}

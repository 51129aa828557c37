package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestWhoCallsIsTold: where proxies say who calls, virtual hosts hide it that lead out of the mesh, and no others do.
// Only proxies say it whose certificate makes it believed, and whose agent knows it.
func TestWhoCallsIsTold(t *testing.T) {
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
			tells := c.identity && c.modules
			out, _ := d.Index().Keys(&model.Proxy{
				Type: model.ProxySidecar, Namespace: "a", IPs: []string{"10.0.0.1"}, DNSDomain: "a.svc.cluster.local",
				Interception: model.InterceptRedirect, Identity: c.identity, Modules: c.modules,
			})
			state := d.Open(out)
			require.Equal(t, tells, state.Listeners["0.0.0.0_80"].Chains[0].HTTP.Telemetry.TellsPeer)
			require.False(t, state.VirtualHosts["80/web.a.svc.cluster.local:80"].HidesPeer)
			require.Equal(t, tells, state.VirtualHosts["80/api.example.com:80"].HidesPeer)
			require.Equal(t, tells, state.VirtualHosts["80/allow_any"].HidesPeer)
		})
	}
}

package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

func peerPolicy(namespace, name string, age int, selector map[string]string, mode model.MTLSMode, ports map[uint32]model.MTLSMode) *model.PeerAuthentication {
	return &model.PeerAuthentication{
		Meta: model.Meta{
			Key:     model.Key{Kind: model.KindPeerAuthentication, Namespace: namespace, Name: name},
			Created: time.Unix(int64(-age), 0),
		},
		Selector: selector, Mode: mode, Ports: ports,
	}
}

// TestAccepted checks what a workload accepts at a port, by the policies of the mesh, its namespace and
// itself: the oldest of each level. Policies of other workloads do not count, and policies without settings
// are not listed.
func TestAccepted(t *testing.T) {
	web, bank := map[string]string{"app": "web"}, map[string]string{"app": "bank"}
	w := compile(t)
	for _, p := range []*model.PeerAuthentication{
		peerPolicy("istio-system", "mesh", 1, nil, model.MTLSStrict, nil),
		peerPolicy("istio-system", "selected", 9, web, model.MTLSDisable, nil),
		peerPolicy("shop", "younger", 1, nil, model.MTLSDisable, nil),
		peerPolicy("shop", "older", 2, nil, model.MTLSPermissive, nil),
		peerPolicy("shop", "web", 1, web, model.MTLSUnset, map[uint32]model.MTLSMode{9090: model.MTLSDisable, 9091: model.MTLSStrict}),
		peerPolicy("shop", "bank", 2, bank, model.MTLSStrict, nil),
		peerPolicy("quiet", "nothing", 1, nil, model.MTLSUnset, nil),
	} {
		w.put(p)
	}
	x := &Explainer{}
	for _, tc := range []struct {
		about, namespace string
		labels           map[string]string
		identity         bool
		address, accepts string
		by               []string
	}{
		{"its own policy is for another port", "shop", web, true, "10.0.0.1:8080", "PERMISSIVE", []string{"istio-system/mesh", "shop/older", "shop/web"}},
		{"its own policy switches it off", "shop", web, true, "10.0.0.1:9090", "DISABLE", []string{"istio-system/mesh", "shop/older", "shop/web"}},
		{"its own policy wants it", "shop", web, true, "[fd00::1]:9091", "STRICT", []string{"istio-system/mesh", "shop/older", "shop/web"}},
		{"a whole workload", "shop", bank, true, "10.0.0.1:8080", "STRICT", []string{"istio-system/mesh", "shop/older", "shop/bank"}},
		{"the namespace's", "shop", nil, true, "10.0.0.1:8080", "PERMISSIVE", []string{"istio-system/mesh", "shop/older"}},
		{"the mesh's", "other", web, true, "10.0.0.1:8080", "STRICT", []string{"istio-system/mesh"}},
		{"one that says nothing", "quiet", web, true, "10.0.0.1:8080", "STRICT", []string{"istio-system/mesh"}},
		{"a sidecar without certificates", "other", web, false, "10.0.0.1:8080", "STRICT, without a certificate", []string{"istio-system/mesh"}},
		{"a socket has no port", "other", web, true, "/run/x", "", nil},
	} {
		t.Run(tc.about, func(t *testing.T) {
			world := w.worldOf(&model.Proxy{Type: model.ProxySidecar, Namespace: tc.namespace, Labels: tc.labels, Identity: tc.identity})
			got := Passage{Result: &simulate.Result{Listener: "virtualInbound"}}
			x.accepted(w.store.Snapshot(), world, tc.address, &got)
			require.Equal(t, tc.accepts, got.Accepts)
			var by []string
			for _, o := range got.Objects {
				by = append(by, o.Object.Namespace+"/"+o.Object.Name)
				require.Contains(t, o.Decides, "mutual TLS at port ")
			}
			require.Equal(t, tc.by, by)
		})
	}
}

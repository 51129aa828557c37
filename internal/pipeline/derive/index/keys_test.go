package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestPortsOfPods checks that the named ports of a proxy are those of its Pod, if that is known and has some, and that a Pod that
// comes or goes moves the proxy to another group.
func TestPortsOfPods(t *testing.T) {
	x := New(model.DefaultMesh())
	put := func(old, now model.Object, k model.Key) func(*model.Proxy) bool {
		return x.Rekey(x.Apply([]store.Change{{Key: k, Old: old, New: now}}))
	}
	service := &model.Service{
		Meta: model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}}, Hostname: "web.shop.svc.cluster.local",
		Selector: map[string]string{"app": "web"}, Resolution: model.ResolutionStatic,
		Ports: []model.ServicePort{{Name: "http", Number: 80, TargetName: "http", Protocol: model.ProtocolHTTP}},
	}
	put(nil, service, service.Key)
	pod := &model.Workload{
		Meta:      model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: "web-1"}, Labels: map[string]string{"app": "web"}},
		Addresses: []string{"10.0.0.1"}, NamedPorts: map[string]uint32{"http": 8080}, Ready: true,
	}
	bare := *pod
	bare.NamedPorts = nil
	labelled := *pod
	labelled.Annotations = map[string]string{"a": "b"}
	for _, typ := range []model.ProxyType{model.ProxySidecar, model.ProxyRouter} {
		t.Run(string(typ), func(t *testing.T) {
			p := &model.Proxy{Type: typ, Namespace: "shop", Name: "web-1", IPs: []string{"10.0.0.1"}, Labels: pod.Labels, NamedPorts: map[string]uint32{"http": 9100}}
			other := &model.Proxy{Type: typ, Namespace: "shop", Name: "web-2"}
			serves := func() uint32 {
				outbound, inbound := x.Keys(p)
				if typ == model.ProxyRouter {
					inbound = outbound
				}
				served := x.NewReader(NewClient(inbound, nil)).Served()
				require.Len(t, served, 1)
				return served[0].Number
			}
			require.Equal(t, uint32(9100), serves(), "the Pod is unknown")
			for _, step := range []struct {
				name     string
				old, now model.Object
				moves    bool
				serves   uint32
			}{
				{"the Pod comes", nil, pod, true, 8080},
				{"an annotation", pod, &labelled, false, 8080},
				{"it has no ports", &labelled, &bare, true, 9100},
				{"it has ports again", &bare, pod, true, 8080},
				{"the Pod goes", pod, nil, true, 9100},
			} {
				rekey := put(step.old, step.now, pod.Key)
				require.Equal(t, step.moves, rekey != nil && rekey(p), step.name)
				require.False(t, rekey != nil && rekey(other), step.name)
				require.Equal(t, step.serves, serves(), step.name)
			}
			require.Equal(t, map[string]uint32{"http": 9100}, p.NamedPorts, "the proxy itself does not change")
		})
	}
}

package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

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

// TestSecretsOfSidecars go to workloads of the Sidecar's namespace that it selects, and whose service
// account may read them.
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
		{"nobody knows who it is", "shop", web, webProxy("shop", "web", false), map[string]string{}},
		{"it is not selected", "shop", web, other, map[string]string{}},
		{"another namespace", "shop", nil, webProxy("elsewhere", "web", true), map[string]string{}},
		{"the Sidecar is the root namespace's", "istio-system", nil, webProxy("shop", "web", true), map[string]string{}},
	} {
		st, d := ingressMesh(t, tc.namespace, tc.selector)
		putSecret(st, d, secretOf("1", []string{"web"}))
		require.Equal(t, tc.want, has(d, tc.proxy), tc.name)
	}
}

// TestASidecarThatChangesChangesItsSecrets in scopes that are open, and leaves nothing behind.
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
	require.Empty(t, without.Account, "service accounts tell proxies apart no more")
}

// TestIngressTLSEndsWhereMutualTLSIsOff: elsewhere the two could not be told apart.
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

// endsFor tells whether a port takes the TLS of clients that are no sidecars, and nothing else.
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

package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestBackendTLSNeedsAuthorities: a policy is in force whether or not there are CAs, and without them nobody is
// connected to.
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

package status

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// TestIngressAddresses checks that Ingresses of the mesh get the addresses of the routers' Service, and others nothing.
func TestIngressAddresses(t *testing.T) {
	own := &model.Ingress{Meta: model.Meta{Key: model.Key{Kind: model.KindIngress, Namespace: "shop", Name: "own"}}, Class: "mesh"}
	theirs := &model.Ingress{Meta: model.Meta{Key: model.Key{Kind: model.KindIngress, Namespace: "shop", Name: "theirs"}}}
	class := &model.IngressClass{Meta: model.Meta{Key: model.Key{Kind: model.KindIngressClass, Name: "mesh"}}, Istio: true}
	service := &model.Service{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "istio-system", Name: "istio-ingressgateway"}},
		Outside: []string{"lb.example.com", "192.0.2.1"},
	}
	st, b := store.New(), NewTracker()
	for _, o := range []model.Object{own, theirs, class} {
		st.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	for _, i := range []*model.Ingress{own, theirs} {
		b.Seen(&kube.Seen{Key: i.Key, Version: "1", Generation: 1})
	}
	update := func(k model.Key) *update {
		b.setBalancers(balancers(st.Snapshot(), model.DefaultMesh()))
		u, err := b.update(k, time.Unix(1, 0))
		require.NoError(t, err)
		return u
	}
	require.Nil(t, update(own.Key), "the Service does not exist, and the status is empty")
	st.Apply([]store.Event{{Key: service.Key, Object: service}})
	require.Nil(t, update(theirs.Key), "it is of another controller")
	u := update(own.Key)
	require.NotNil(t, u)
	require.JSONEq(t, `{"metadata":{"resourceVersion":"1"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"lb.example.com"}]}}}`, string(u.patch))
	var p struct{ Status json.RawMessage }
	require.NoError(t, json.Unmarshal(u.patch, &p))
	require.True(t, b.found(own.Key, &live{version: "2", generation: 1, status: p.Status}))
	require.Nil(t, update(own.Key), "what is written is all")
	st.Apply([]store.Event{{Key: service.Key}})
	require.JSONEq(t, `{"metadata":{"resourceVersion":"2"},"status":{"loadBalancer":{"ingress":[]}}}`, string(update(own.Key).patch), "the addresses are gone")
}

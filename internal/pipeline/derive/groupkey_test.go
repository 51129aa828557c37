package derive

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/test/randommesh"
)

func put(d *Deriver, old, now model.Object) Update {
	o := now
	if o == nil {
		o = old
	}
	return d.Apply([]store.Change{{Key: o.Metadata().Key, Old: old, New: now}})
}

func sidecarOf(ns, name string, selector map[string]string, created int64) *model.Sidecar {
	return &model.Sidecar{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: ns, Name: name}, Created: time.Unix(created, 0)},
		Selector: selector,
	}
}

func TestWhichSidecarSelects(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	web := map[string]string{"app": "web"}
	for _, s := range []*model.Sidecar{
		sidecarOf("shop", "young", web, 9), sidecarOf("shop", "old", web, 1), sidecarOf("shop", "other", map[string]string{"app": "db"}, 0),
		sidecarOf("shop", "default", nil, 5), sidecarOf("shop", "a-younger-default", nil, 6),
		sidecarOf("istio-system", "mesh", nil, 0), sidecarOf("istio-system", "selecting", web, 0),
	} {
		put(d, nil, s)
	}
	for _, c := range []struct{ ns, app, want string }{
		{"shop", "web", "shop/old"},
		{"shop", "cron", "shop/default"},
		{"bank", "web", "istio-system/mesh"},
		{"istio-system", "web", "istio-system/selecting"},
		{"istio-system", "cron", "istio-system/mesh"},
	} {
		p := &model.Proxy{Type: model.ProxySidecar, Namespace: c.ns, Labels: map[string]string{"app": c.app}}
		outbound, inbound := d.Index().Keys(p)
		require.Equal(t, c.want, outbound.Sidecar.Namespace+"/"+outbound.Sidecar.Name, "%s of %s", c.app, c.ns)
		require.Equal(t, outbound.Sidecar, inbound.Sidecar)
	}
}

func ruleFor(version string, port uint32, p model.TrafficPolicy, selector map[string]string) *model.DestinationRule {
	d := &model.DestinationRule{
		Meta: model.Meta{Key: model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "a"}, ResourceVersion: version},
		Host: "a.shop.svc.cluster.local", WorkloadSelector: selector,
	}
	if port != 0 {
		d.Ports = map[uint32]model.TrafficPolicy{port: p}
	} else {
		d.Policy = p
	}
	return d
}

// TestOnlyUsedFieldsSplitGroups follows the labels and localities of clients. They split groups from the first rule that uses
// them to the last. An update of such a rule changes no keys.
func TestOnlyUsedFieldsSplitGroups(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	p := &model.Proxy{
		Type: model.ProxySidecar, Namespace: "shop", Labels: map[string]string{"app": "web", "version": "v1", "pod": "7"},
		Locality: model.Locality{Region: "r1"},
	}
	key := func() GroupKey { k, _ := d.Index().Keys(p); return k }
	require.Empty(t, key().Labels)
	require.Empty(t, key().Locality)

	selecting := ruleFor("1", 0, model.TrafficPolicy{}, map[string]string{"app": "web"})
	require.NotNil(t, put(d, nil, selecting).Rekey)
	require.Equal(t, "app=web", key().Labels)

	again := ruleFor("2", 0, model.TrafficPolicy{}, map[string]string{"app": "db"})
	require.Nil(t, put(d, selecting, again).Rekey, "the same labels are asked for")

	priority := model.TrafficPolicy{LoadBalancer: &model.LoadBalancer{Locality: &model.LocalityLB{FailoverPriority: []string{"version"}}}}
	ofPort := ruleFor("3", 80, priority, nil)
	require.NotNil(t, put(d, again, ofPort).Rekey)
	require.Equal(t, "version=v1", key().Labels)
	require.Equal(t, "r1", key().Locality.Region)

	require.NotNil(t, put(d, ofPort, nil).Rekey)
	require.Empty(t, key().Labels)
	require.Empty(t, key().Locality)

	mesh := func(set *model.LocalityLB) *model.MeshConfig {
		return &model.MeshConfig{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
			Locality: set,
		}
	}
	asks := mesh(&model.LocalityLB{
		Distribute:       []model.LocalityDistribute{{From: "*", To: map[string]uint32{"*": 100}}},
		FailoverPriority: []string{"version", model.LabelNode},
	})
	require.NotNil(t, put(d, nil, asks).Rekey)
	require.Equal(t, "version=v1", key().Labels)
	require.Equal(t, "r1", key().Locality.Region)
	require.NotNil(t, put(d, asks, mesh(nil)).Rekey)
	require.Empty(t, key().Labels)
	require.Empty(t, key().Locality)
}

// TestASidecarsChangeConcernsItsNamespace checks which groups are derived again.
func TestASidecarsChangeConcernsItsNamespace(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	shop, bank := &model.Proxy{Namespace: "shop"}, &model.Proxy{Namespace: "bank"}
	rekey := put(d, nil, sidecarOf("shop", "x", nil, 0)).Rekey
	require.True(t, rekey(shop))
	require.False(t, rekey(bank))
	require.True(t, put(d, nil, sidecarOf("istio-system", "x", nil, 0)).Rekey(bank))
}

// TestRekeyIsComplete checks that an update reports all proxies that belong to other groups after its batch.
func TestRekeyIsComplete(t *testing.T) {
	for seed := range lives(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := randommesh.New(seed, 5)
			st, d := store.New(), New(randommesh.Mesh(), 1)
			of := map[*model.Proxy][2]GroupKey{}
			for range 20 {
				of[w.Proxy()] = [2]GroupKey{}
			}
			for batch := range 60 {
				_, changes := st.Apply(randomBatch(w))
				concerns := d.Apply(changes).Rekey
				for p, was := range of {
					outbound, inbound := d.Index().Keys(p)
					now := [2]GroupKey{outbound, inbound}
					require.True(t, batch == 0 || was == now || concerns != nil && concerns(p), "%+v\n%s -> %s\n%s -> %s", p, was[0], outbound, was[1], inbound)
					of[p] = now
				}
			}
		})
	}
}

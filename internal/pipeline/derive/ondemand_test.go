package derive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// delivered derives the outbound group of a sidecar that can ask, with a delivery, and what later objects change.
func delivered(delivery model.Delivery, sharding Sharding, objects ...model.Object) (have *Delta, apply func(...model.Object)) {
	mesh := model.DefaultMesh()
	mesh.Delivery = delivery
	st, d := store.New(), New(mesh, 1)
	d.SetSharding(sharding)
	var key GroupKey
	apply = func(objects ...model.Object) {
		var events []store.Event
		for _, o := range objects {
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := st.Apply(events)
		if delta := d.Apply(changes).Deltas[key]; delta != nil {
			merge(have, delta)
		}
	}
	apply(objects...)
	p := webProxy("shop", "web", true)
	p.OnDemand, p.ScopedRoutes = true, true
	key, _ = d.Index().Keys(p)
	have = d.Open(key)
	return have, apply
}

// TestListenersOfBothModes checks that automatic delivery has the listeners of clusters on demand also while a sidecar gets
// everything, unless routes are split in only one of the modes: a change of the mode ends no other connections.
func TestListenersOfBothModes(t *testing.T) {
	var services []model.Object
	for i := range 8 {
		services = append(services, serviceOf(fmt.Sprint("s", i), "1", nil))
	}
	database := serviceOf("database", "1", func(s *model.Service) {
		s.Ports = []model.ServicePort{{Name: "tcp", Number: 6379, Protocol: model.ProtocolTCP}}
	})
	services = append(services, database)
	for _, tt := range []struct {
		name string
		from int // virtual hosts; a quarter of it on demand
		same bool
	}{{"whole in both", 1000, true}, {"split on demand", 32, false}} {
		t.Run(tt.name, func(t *testing.T) {
			by := Sharding{From: tt.from, Bits: 3}
			auto, _ := delivered(model.DeliverAuto, by, services...)
			asked, _ := delivered(model.DeliverOnDemand, by, services...)
			require.NotEmpty(t, auto.Listeners)
			for name, l := range auto.Listeners {
				if name == "0.0.0.0_80" && !tt.same {
					require.NotEqual(t, l, asked.Listeners[name])
					require.True(t, asked.Listeners[name].Chains[0].HTTP.ShardsOnDemand)
					continue
				}
				require.Equal(t, l, asked.Listeners[name], name)
			}
			require.True(t, auto.Listeners["0.0.0.0_80"].Chains[0].HTTP.OnDemand)
			full, _ := delivered(model.DeliverFull, by, services...)
			require.False(t, full.Listeners["0.0.0.0_80"].Chains[0].HTTP.OnDemand)
		})
	}
}

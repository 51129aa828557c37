package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// entryWorld has a ServiceEntry that selects WorkloadEntries.
type entryWorld struct{ *Index }

func newEntryWorld() entryWorld {
	x := entryWorld{New(model.DefaultMesh())}
	x.put(nil, &model.ServiceEntry{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "db"}},
		Hosts: []model.Host{"db.example.com"},
		Template: model.Service{
			Selector: map[string]string{"app": "db"}, Resolution: model.ResolutionStatic,
			Ports: []model.ServicePort{{Name: "http", Number: 80, TargetPort: 8080, Protocol: model.ProtocolHTTP}},
		},
	})
	return x
}

func (x entryWorld) put(old, now model.Object) *Touched {
	o := now
	if o == nil {
		o = old
	}
	return x.Apply([]store.Change{{Key: o.Metadata().Key, Old: old, New: now}})
}

func entryOf(i int, ports map[string]uint32) *model.Workload {
	return &model.Workload{
		Meta:      model.Meta{Key: model.Key{Kind: model.KindWorkloadEntry, Namespace: "shop", Name: fmt.Sprint("vm-", i)}, Labels: map[string]string{"app": "db"}},
		Addresses: []string{fmt.Sprint("10.0.0.", i)}, NamedPorts: ports, Ready: true,
	}
}

// inbound is the inbound group of the sidecar at an entry's address, with the ports that it serves.
func (x entryWorld) inbound(i int, labels map[string]string) (GroupKey, []uint32, FactList) {
	_, in := x.Keys(&model.Proxy{
		Type: model.ProxySidecar, Namespace: "shop", Name: fmt.Sprint("vm-", i), IPs: []string{fmt.Sprint("10.0.0.", i)}, Labels: labels,
	})
	r := x.NewReader(NewClient(in, nil))
	var ports []uint32
	for _, s := range r.Served() {
		ports = append(ports, s.Number)
	}
	return in, ports, r.Facts()
}

// TestWorkloadEntriesShareGroups checks that WorkloadEntries make the inbound groups of their sidecars differ only if these
// serve other ports than their labels give.
func TestWorkloadEntriesShareGroups(t *testing.T) {
	db, other := map[string]string{"app": "db"}, map[string]string{"app": "other"}
	for name, c := range map[string]struct {
		ports  map[string]uint32
		labels map[string]string
		shared bool
		serves uint32
	}{
		"no ports":                   {nil, db, true, 8080},
		"ports of no service":        {map[string]uint32{"tcp": 1234}, db, true, 8080},
		"the ports of the service":   {map[string]uint32{"http": 8080}, db, true, 8080},
		"other ports":                {map[string]uint32{"http": 9090}, db, false, 9090},
		"other labels of sidecars":   {nil, other, false, 8080},
		"other labels and own ports": {map[string]uint32{"http": 9090}, other, false, 9090},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEntryWorld()
			for i := range 2 {
				x.put(nil, entryOf(i+1, c.ports))
			}
			first, ports, facts := x.inbound(1, c.labels)
			second, _, _ := x.inbound(2, c.labels)
			require.Equal(t, c.shared, first == second)
			require.Equal(t, []uint32{c.serves}, ports)
			for _, f := range facts {
				require.Zero(t, f.kinds&factEndpoints, "the health of other workloads does not count: %s", f.name)
			}
		})
	}
}

// TestWorkloadEntriesMoveGroups checks which changes of a WorkloadEntry concern the sidecar at its address.
func TestWorkloadEntriesMoveGroups(t *testing.T) {
	x := newEntryWorld()
	labels := map[string]string{"app": "db"}
	unready := entryOf(1, nil)
	unready.Ready = false
	relabelled := entryOf(1, map[string]uint32{"http": 9090})
	relabelled.Labels = map[string]string{"app": "other"}
	for _, step := range []struct {
		name     string
		old, now *model.Workload
		moves    bool
		serves   uint32
	}{
		{"its health", entryOf(1, nil), unready, false, 8080},
		{"its ports", unready, entryOf(1, map[string]uint32{"http": 9090}), true, 9090},
		{"other ports", entryOf(1, map[string]uint32{"http": 9090}), entryOf(1, map[string]uint32{"http": 9091}), true, 9091},
		{"its labels", entryOf(1, map[string]uint32{"http": 9091}), relabelled, true, 8080},
	} {
		if step.name == "its health" {
			x.put(nil, step.old)
		}
		t.Run(step.name, func(t *testing.T) {
			touched := x.put(step.old, step.now)
			rekey := x.Rekey(touched)
			moves := rekey != nil && rekey(&model.Proxy{Namespace: "shop", IPs: []string{"10.0.0.1"}})
			require.Equal(t, step.moves, moves)
			_, changed := touched.Facts[addressFact("shop", "10.0.0.1")]
			require.Equal(t, step.moves, changed)
			_, ports, _ := x.inbound(1, labels)
			require.Equal(t, []uint32{step.serves}, ports)
		})
	}
}

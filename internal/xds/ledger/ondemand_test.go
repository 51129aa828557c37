package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// everything is the stream of everything of a proxy that gets clusters on demand, bound to one table.
type everything struct {
	t      *testing.T
	table  *table.Table
	ledger *Ledger
	open   []Response
	rev    model.Revision
}

// newEverything connects a proxy that lists clusters, and has a listener.
func newEverything(t *testing.T, clusters ...string) *everything {
	x := &everything{t: t, table: table.NewOnDemand("out", nil)}
	x.write(append([]string{"l=1"}, clusters...)...)
	x.ledger = New(Delta, VirtualHosts, names.NewPool(), []*table.State{x.table.State()})
	return x
}

// request passes a request for a type to the ledger.
func (x *everything) request(t resource.Type, listed ...string) {
	r := &Request{TypeURL: []byte(t.URL())}
	for _, l := range listed {
		name, version, _ := strings.Cut(l, "=")
		r.Initial = append(r.Initial, NameVersion{[]byte(name), []byte(version)})
	}
	require.True(x.t, x.ledger.Handle(r))
}

// write commits "name=version" and "-name". A version that ends in "o" is that of a cluster on demand, and l is a listener.
func (x *everything) write(changes ...string) {
	x.rev++
	var updates []table.Update
	for _, c := range changes {
		name, version, ok := strings.Cut(strings.TrimPrefix(c, "-"), "=")
		u := table.Update{Type: resource.Cluster, Name: name}
		if name == "l" {
			u.Type = resource.Listener
		}
		if ok {
			u.Resource = &resource.Encoded{Name: name, Version: version}
		}
		updates = append(updates, u)
	}
	x.table.Commit(x.rev, updates)
}

// commit is write, and returns what is sent then.
func (x *everything) commit(changes ...string) []string {
	x.write(changes...)
	x.ledger.Update([]*table.State{x.table.State()})
	return x.next()
}

// next returns what is sent, as "name=version" and "-name".
func (x *everything) next() (out []string) {
	for _, r := range x.ledger.Next(nil) {
		x.open = append(x.open, r)
		for e := range (&flight{parts: r.Parts}).entries() {
			out = append(out, e.Name+"="+e.Version)
		}
		for _, n := range r.Removed {
			out = append(out, "-"+n)
		}
	}
	slices.Sort(out)
	return out
}

// answer ACKs what was sent, or refuses the responses of one type, and returns what is sent then.
func (x *everything) answer(refuse ...resource.Type) []string {
	open := x.open
	x.open = nil
	for _, r := range open {
		a := &Request{TypeURL: []byte(r.Type.URL()), Nonce: fmt.Append(nil, r.Nonce)}
		if slices.Contains(refuse, r.Type) {
			a.Error = &Error{Message: "no"}
		}
		require.True(x.t, x.ledger.Handle(a))
	}
	return x.next()
}

// status returns how far a cluster has come.
func (x *everything) status(cluster string) ResourceStatus {
	return x.ledger.Status(resource.Cluster, cluster)
}

// TestClusterBecomesOnDemandWhileItsRemovalWaits: the proxy refuses a listener, which may refer to a removed cluster. The
// cluster returns as one on demand.
func TestClusterBecomesOnDemandWhileItsRemovalWaits(t *testing.T) {
	x := newEverything(t, "c=1", "d=1")
	x.request(resource.Cluster)
	x.request(resource.Listener)
	require.Equal(t, []string{"c=1", "d=1"}, x.next())
	require.Equal(t, []string{"l=1"}, x.answer())
	x.answer()
	require.Equal(t, []string{"l=2"}, x.commit("l=2", "-c"))
	require.Empty(t, x.answer(resource.Listener), "the removal waits")
	require.Equal(t, []string{"c=2o"}, x.commit("c=2o"))
	require.Equal(t, Unanswered, x.status("c"))
	x.answer()
	require.Equal(t, []string{"c=3o"}, x.commit("c=3o"))
	x.answer()
	require.Equal(t, []string{"l=3"}, x.commit("l=3", "-c"))
	require.Equal(t, []string{"-c"}, x.answer())
}

// TestRemovedClusterIsOnDemandLater: the proxy does not have a removed cluster that returns as one on demand, and asks for it.
func TestRemovedClusterIsOnDemandLater(t *testing.T) {
	x := newEverything(t, "c=1", "d=1")
	x.request(resource.Cluster)
	require.Equal(t, []string{"c=1", "d=1"}, x.next())
	x.answer()
	require.Equal(t, []string{"-c"}, x.commit("-c"))
	x.answer()
	require.Empty(t, x.commit("c=2o"))
	require.Equal(t, NotSubscribed, x.status("c"))
}

// reconnected returns the stream of a proxy that lists the clusters c, d=1o and a listener, and refuses the next form of the
// listener. The mesh lost d meanwhile, so its removal waits.
func reconnected(t *testing.T) *everything {
	x := newEverything(t, "c=1")
	x.request(resource.Cluster, "c=1", "d=1o")
	x.request(resource.Listener, "l=1")
	x.request(resource.RouteConfig)
	x.request(resource.VirtualHost)
	x.write("l=2")
	x.ledger.Update([]*table.State{x.table.State()})
	require.Equal(t, []string{"l=2"}, x.next())
	require.Empty(t, x.answer(resource.Listener), "the removal waits")
	return x
}

// TestListedClusterReturns: a proxy lists a cluster on demand that is gone, and returns before it could be removed.
func TestListedClusterReturns(t *testing.T) {
	x := reconnected(t)
	require.Equal(t, []string{"d=2o"}, x.commit("d=2o"))
	require.Equal(t, Unanswered, x.status("d"))
	x.answer()
	require.Equal(t, []string{"d=3o"}, x.commit("d=3o"))
	x.answer()
	require.Equal(t, []string{"l=3"}, x.commit("l=3", "-d"))
	require.Equal(t, []string{"-d"}, x.answer())
}

// TestListedClusterReturnsInAnotherTable is the same for a cluster that exists in the table that the proxy moves to.
func TestListedClusterReturnsInAnotherTable(t *testing.T) {
	x := reconnected(t)
	x.table = table.NewOnDemand("other", nil)
	require.Equal(t, []string{"d=2o"}, x.commit("c=1", "l=2", "d=2o"))
	x.answer()
	require.Equal(t, []string{"d=3o"}, x.commit("d=3o"))
}

// TestClusterReturnsBeforeItsRemovalIsRefused: the proxy refuses a response that removes a cluster and changes another. The
// removed one exists again by then, on demand. The proxy may have it, so it is sent.
func TestClusterReturnsBeforeItsRemovalIsRefused(t *testing.T) {
	x := newEverything(t, "c=1", "d=1")
	x.request(resource.Cluster)
	require.Equal(t, []string{"c=1", "d=1"}, x.next())
	x.answer()
	require.Equal(t, []string{"-d", "c=2"}, x.commit("c=2", "-d"))
	require.Empty(t, x.commit("d=2o"))
	require.Equal(t, []string{"d=2o"}, x.answer(resource.Cluster), "one half of the refused response")
	require.Equal(t, []string{"c=2"}, x.answer())
	for x.answer() != nil { // what came in halves may come again
	}
	require.Equal(t, []string{"d=3o"}, x.commit("d=3o"))
	x.answer()
	require.Equal(t, []string{"-d"}, x.commit("-d"))
}

package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// world is the expected content of a table: type -> name -> content.
type world [resource.NumTypes]map[string]string

func newWorld() *world {
	w := &world{}
	for i := range w {
		w[i] = map[string]string{}
	}
	return w
}

// randomUpdates changes the world and returns the changes as updates.
func (w *world) randomUpdates(r *rand.Rand, n int) []Update {
	var out []Update
	for range n {
		t := resource.Type(r.IntN(int(resource.NumTypes)))
		name := fmt.Sprintf("rc%d", r.IntN(5))
		switch t {
		case resource.VirtualHost:
			name += fmt.Sprintf("/vh%d", r.IntN(10))
		case resource.Cluster, resource.Endpoints:
			name = fmt.Sprintf("c%d", r.IntN(40))
		}
		if r.IntN(4) == 0 {
			delete(w[t], name)
			out = append(out, Update{Type: t, Name: name})
			continue
		}
		content := fmt.Sprint(r.IntN(4))
		w[t][name] = content
		out = append(out, Update{Type: t, Name: name, Resource: encoded(t, name, content)})
	}
	return out
}

func encoded(t resource.Type, name, content string) *resource.Encoded {
	var m proto.Message = &routev3.VirtualHost{Name: name, Domains: []string{content}}
	if t == resource.RouteConfig || t == resource.VHDSRouteConfig {
		m = &routev3.RouteConfiguration{Name: name, InternalOnlyHeaders: []string{content}}
	}
	e, err := resource.Encode(t, name, m)
	if err != nil {
		panic(err)
	}
	return e
}

// client applies what it receives, like the proxy of a stream.
type client struct {
	at  model.Revision
	has [resource.NumTypes]map[string]string // name -> version
}

func newClient() *client {
	c := &client{}
	for i := range c.has {
		c.has[i] = map[string]string{}
	}
	return c
}

// catchUp returns false if too much was forgotten.
func (c *client) catchUp(s *State) bool {
	for t := range resource.NumTypes {
		if c.at < s.Forgotten(t) {
			return false
		}
		last := model.Revision(0)
		for e := range s.Changed(t, c.at) {
			if e.Revision < last || e.Revision <= c.at {
				panic("not in revision order")
			}
			last = e.Revision
			c.has[t][e.Name] = e.Version
		}
		for n, rev := range s.Removed(t, c.at) {
			if rev <= c.at {
				panic("an old removal")
			}
			delete(c.has[t], n)
		}
	}
	c.at = s.Revision
	return true
}

func versions(s *State) (out [resource.NumTypes]map[string]string) {
	for t := range resource.NumTypes {
		out[t] = map[string]string{}
		for e := range s.All(t) {
			out[t][e.Name] = e.Version
		}
	}
	return out
}

// TestCursorsConverge commits at random. Clients that catch up from any cursor to any state,
// including old ones, have what the state has.
func TestCursorsConverge(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() { // with the race detector, which is ten times slower
		seeds = 5
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		tab, w := New("test"), newWorld()
		states := []*State{tab.State()}
		want := [][resource.NumTypes]map[string]string{versions(tab.State())}
		clients := []*client{newClient(), newClient(), newClient()}
		rev := model.Revision(0)
		for range 300 {
			rev += model.Revision(1 + r.IntN(3))
			before := tab.State()
			if tab.Commit(rev, w.randomUpdates(r, 1+r.IntN(12))) == 0 {
				require.Same(t, before, tab.State())
			} else {
				states = append(states, tab.State())
				want = append(want, versions(tab.State()))
			}
			for _, c := range clients {
				if r.IntN(8) != 0 {
					continue
				}
				i := len(states) - 1 - r.IntN(min(4, len(states)))
				if states[i].Revision < c.at {
					continue
				}
				require.True(t, c.catchUp(states[i]))
				require.Equal(t, want[i], c.has, "seed %d, revision %d", seed, states[i].Revision)
			}
		}
		for i, s := range states { // old states are unchanged
			require.Equal(t, want[i], versions(s))
		}
		w.requireEqual(t, tab.State())
	}
}

// requireEqual compares the last state with the world, including whole route configurations.
func (w *world) requireEqual(t *testing.T, s *State) {
	for typ := range resource.NumTypes {
		require.Equal(t, len(w[typ]), s.Len(typ), typ)
		for name, content := range w[typ] {
			e := s.Get(typ, name)
			require.NotNil(t, e)
			if typ != resource.RouteConfig {
				require.Equal(t, encoded(typ, name, content).Version, e.Version)
				continue
			}
			var got routev3.RouteConfiguration
			require.NoError(t, proto.Unmarshal(e.Resource().Value(), &got))
			want := &routev3.RouteConfiguration{Name: name, InternalOnlyHeaders: []string{content}}
			for _, vh := range slices.Sorted(maps.Keys(w[resource.VirtualHost])) {
				if strings.HasPrefix(vh, name+"/") {
					want.VirtualHosts = append(want.VirtualHosts, &routev3.VirtualHost{Name: vh, Domains: []string{w[resource.VirtualHost][vh]}})
				}
			}
			require.True(t, proto.Equal(want, &got), "%v\n%v", want, &got)
			require.Equal(t, e.Version, e.Resource().Version)
		}
	}
}

// TestEqualContentEqualVersion builds the same world in two ways: another control plane must give a
// reconnecting proxy the same versions.
func TestEqualContentEqualVersion(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	a, w := New("a"), newWorld()
	for rev := range model.Revision(200) {
		a.Commit(rev+1, w.randomUpdates(r, 5))
	}
	var all []Update
	for typ := range resource.NumTypes {
		for name, content := range w[typ] {
			all = append(all, Update{Type: typ, Name: name, Resource: encoded(typ, name, content)})
		}
	}
	b := New("b")
	b.Commit(1, all)
	require.Equal(t, versions(a.State()), versions(b.State()))
}

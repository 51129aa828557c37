package propagation

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

const (
	memoryScenario    = "memory"
	plainMemoryLimit  = 20.0 // KiB a connected proxy in plain text, all told
	tlsMemoryLimit    = 40.0 // KiB a connected proxy with TLS, all told
	memoryGrowthLimit = 1.2  // x the smallest mesh's, in plain text
)

// memory measures what one more connected proxy takes of the control plane's live heap and
// stacks, all told, in meshes of different sizes. Each proxy is connected twice, by another
// name: what a second one shares with the first (scopes, its own service's listeners) is
// the first's.
func memory(ctx context.Context, o *Options, dir string) (*Result, error) {
	r := &Result{State: &FinalState{}, Note: "memory of the second of two proxies that are configured alike, and everything that is there for it"}
	for _, tls := range []bool{false, true} {
		first := 0.0
		for _, services := range o.Memory {
			with := *o
			with.TLS = tls
			o.progress("memory: %d services, %d proxies twice, %s", services, o.MemoryProxy, streamsOf(tls))
			side, err := anotherProxy(ctx, &with, filepath.Join(dir, fmt.Sprint(streamsOf(tls), services)), services, r.State)
			if err != nil {
				return nil, err
			}
			r.memoryBars(tls, services, side.ProxyMemory, first)
			if first == 0 {
				first = side.ProxyMemory
			}
			r.Subject = side
		}
	}
	r.Mesh = meshfiles.Shape{Services: o.Memory[len(o.Memory)-1], Proxies: 2 * o.MemoryProxy}
	return r, nil
}

func streamsOf(tls bool) string {
	if tls {
		return "TLS"
	}
	return "plain text"
}

// memoryBars compares the memory of a proxy, in bytes, with its targets. first is the memory
// in the smallest mesh, or 0 if this is the smallest mesh. With TLS there is no target for
// growth: the input buffer of a tls.Conn is as large as the largest record that the proxy sent.
func (r *Result) memoryBars(tls bool, services int, takes, first float64) {
	limit := plainMemoryLimit
	if tls {
		limit = tlsMemoryLimit
	}
	r.bar(fmt.Sprintf("a proxy, %s, %d services", streamsOf(tls), services), takes/1024, limit, "KiB")
	if first > 0 && !tls {
		r.bar(fmt.Sprintf("%d services / the fewest", services), takes/first, memoryGrowthLimit, "x")
	}
}

// anotherProxy connects all proxies, and then as many again.
func anotherProxy(ctx context.Context, o *Options, dir string, services int, state *FinalState) (Side, error) {
	s, err := openSession(ctx, o, dir, meshfiles.Shape{Services: services, Proxies: o.MemoryProxy})
	if err != nil {
		return Side{}, err
	}
	defer s.close()
	if err := s.connect(ctx, false); err != nil {
		return Side{}, err
	}
	again := s.cp.subject
	again.fleet = fleet.NewFleet(s.cp.fleet.Catalog, s.fleetOptions(), others(s.ids))
	again.fleet.Start(ctx)
	defer again.fleet.Stop()
	side, err := s.herd(ctx, &again, again.fleet.Open)
	if err != nil {
		return Side{}, err
	}
	end, err := s.finalState(ctx)
	if err == nil {
		state.merge(end)
	}
	return side, err
}

// others are proxies like these, with other names.
func others(ids []fleet.Identity) []fleet.Identity {
	out := make([]fleet.Identity, len(ids))
	for i, id := range ids {
		id.Name += "-too"
		out[i] = id
	}
	return out
}

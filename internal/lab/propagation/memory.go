package propagation

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

const (
	plainMemoryLimit  = 20.0 // KiB for each connected proxy in plain text
	tlsMemoryLimit    = 40.0 // KiB for each connected proxy with TLS
	memoryGrowthLimit = 1.2  // x the smallest mesh's, in plain text
)

// memory measures how much one more connected proxy adds to the control plane's live heap and stacks, in meshes of
// different sizes. Each proxy connects twice, under two names. Only the second one is measured, because it shares
// proxy group and listeners with the first.
func memory(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	r := &results.Result{State: &results.FinalState{}, Note: "memory of the second of two proxies with the same configuration"}
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
			memoryTargets(r, tls, services, side.ProxyMemory, first)
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

// memoryTargets compares the memory of a proxy, in bytes, with its targets. first is the memory
// in the smallest mesh, or 0 if this is the smallest mesh. With TLS there is no target for
// growth: the input buffer of a tls.Conn is as large as the largest record that the proxy sent.
func memoryTargets(r *results.Result, tls bool, services int, takes, first float64) {
	limit := plainMemoryLimit
	if tls {
		limit = tlsMemoryLimit
	}
	r.AddTarget(fmt.Sprintf("a proxy, %s, %d services", streamsOf(tls), services), takes/1024, limit, "KiB")
	if first > 0 && !tls {
		r.AddTarget(fmt.Sprintf("%d services / the fewest", services), takes/first, memoryGrowthLimit, "x")
	}
}

// anotherProxy connects all proxies, and then as many again, and measures the second half.
func anotherProxy(ctx context.Context, o *Options, dir string, services int, state *results.FinalState) (results.Side, error) {
	s, err := openMeshSession(ctx, o, dir, meshfiles.Shape{Services: services, Proxies: o.MemoryProxy})
	if err != nil {
		return results.Side{}, err
	}
	defer s.Close()
	if err := s.Connect(ctx, false); err != nil {
		return results.Side{}, err
	}
	again := s.CP.Subject
	again.Fleet = fleet.NewFleet(s.CP.Fleet.Catalog, s.FleetOptions(), others(s.IDs))
	again.Fleet.Start(ctx)
	defer again.Fleet.Stop()
	side, err := s.ConnectAll(ctx, &again, again.Fleet.Open)
	if err != nil {
		return results.Side{}, err
	}
	end, err := s.FinalState(ctx)
	if err == nil {
		state.Merge(end)
	}
	return side, err
}

// others returns proxies with the same configuration and other names.
func others(ids []fleet.Identity) []fleet.Identity {
	out := make([]fleet.Identity, len(ids))
	for i, id := range ids {
		id.Name += "-too"
		out[i] = id
	}
	return out
}

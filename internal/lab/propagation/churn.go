package propagation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
)

const (
	endpointsOf = "endpoints"
	routeOf     = "route"
)

// churn changes a random route at each tick, and all endpoints of a random service at every second tick.
func churn(ctx context.Context, s *meshSession) (*results.Result, error) {
	random := rand.New(rand.NewPCG(rollout.ChurnSeed, rollout.ChurnSeed)) //nolint:gosec // the same mesh each time
	tick := time.NewTicker(time.Duration(float64(rollout.RouteInterval) / s.opts.ChurnSpeed))
	defer tick.Stop()
	echo, err := s.Location.Echo(ctx, s.Mesh.RouteShadow())
	if err != nil {
		return nil, err
	}
	defer echo.Stop()
	c := &churning{meshSession: s, random: random, echo: echo, samples: map[string][]results.Sample{}}
	for len(c.samples[routeOf])+len(c.samples[endpointsOf]) < s.opts.ChurnEvents {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if err := c.tick(ctx); err != nil {
			return nil, err
		}
	}
	return c.result(), nil
}

// churning has the measurements of churn.
type churning struct {
	*meshSession
	random *rand.Rand
	echo   *meshkube.Echo

	ticks   int                         // so far
	samples map[string][]results.Sample // by kind of change
	base    []results.Sample            // of the baseline, one for each tick
	bare    []results.Sample            // of bare TCP, one for each tick
}

func (c *churning) tick(ctx context.Context) error {
	c.ticks++
	kinds := []string{routeOf}
	if c.ticks%2 == 0 {
		kinds = append(kinds, endpointsOf)
	}
	for _, kind := range kinds {
		sample, err := c.round(ctx, []step{{churnChange(c.Mesh, kind, c.random.IntN(c.Mesh.Services)), true}}, nil)
		if err != nil {
			return err
		}
		c.samples[kind] = append(c.samples[kind], sample)
	}
	routes := c.samples[routeOf]
	beside, err := c.besides(ctx, c.echo, routes[len(routes)-1].Concerned.Bytes)
	if err != nil {
		return err
	}
	c.base, c.bare = append(c.base, beside[0]), append(c.bare, beside[1])
	return nil
}

func (c *churning) result() *results.Result {
	baselineSide, bareSide := results.SideOf(c.base), results.SideOf(c.bare)
	r := &results.Result{Subject: results.SideOf(slices.Concat(c.samples[routeOf], c.samples[endpointsOf])), Baseline: &baselineSide, Bare: &bareSide}
	for _, kind := range []string{endpointsOf, routeOf} {
		side := results.SideOf(c.samples[kind])
		r.Kinds = append(r.Kinds, results.KindSpread{Kind: kind, Changes: side.Changes, Proxies: side.Proxies})
		if side.Changes > 0 {
			r.AddTarget("p99 event to ACK, "+kind, side.Proxies.P99, rollout.ChurnLimit, "ms")
		}
	}
	return r
}

func churnChange(m *meshfiles.Mesh, kind string, i int) func() (meshfiles.Change, error) {
	if kind == endpointsOf {
		return func() (meshfiles.Change, error) { return m.ReplaceEndpoints(i) }
	}
	return func() (meshfiles.Change, error) { return m.ChangeRoute(i) }
}

package propagation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
)

// Airbnb's churn: a deployment restarts each 10 s, a route changes each 5 s.
const (
	churnRoute  = 5 * time.Second
	churnLimit  = 60.0 // ms
	churnSeed   = 1
	endpointsOf = "endpoints"
	routeOf     = "route"
)

// churn lets things change at random places for a while, by the clock: each tick a
// route, and each second tick all endpoints of a service.
func churn(ctx context.Context, s *session) (*Result, error) {
	random := rand.New(rand.NewPCG(churnSeed, churnSeed)) //nolint:gosec // the same mesh each time
	tick := time.NewTicker(time.Duration(float64(churnRoute) / s.opts.ChurnSpeed))
	defer tick.Stop()
	echo, err := s.place.echo(ctx, s.mesh.RouteTwin())
	if err != nil {
		return nil, err
	}
	defer echo.Stop()
	c := &churning{session: s, random: random, echo: echo, samples: map[string][]Sample{}}
	for c.changes < s.opts.ChurnEvents {
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

// churning is what is measured while things change.
type churning struct {
	*session
	random *rand.Rand
	echo   *meshkube.Echo

	changes int                 // so far
	samples map[string][]Sample // by what changed
	base    []Sample            // the floor's, one a tick
	bare    []Sample            // the limit's, likewise
}

func (c *churning) tick(ctx context.Context) error {
	for _, kind := range []string{routeOf, endpointsOf}[:1+c.changes/2%2] {
		sample, err := c.round(ctx, []step{{churnChange(c.mesh, kind, c.random.IntN(c.mesh.Services)), true}}, nil)
		if err != nil {
			return err
		}
		c.samples[kind] = append(c.samples[kind], sample)
		c.changes++
	}
	routes := c.samples[routeOf]
	beside, err := c.besides(ctx, c.echo, routes[len(routes)-1].Concerned.Bytes)
	if err != nil {
		return err
	}
	c.base, c.bare = append(c.base, beside[0]), append(c.bare, beside[1])
	return nil
}

func (c *churning) result() *Result {
	floorSide, bareSide := sideOf(c.base), sideOf(c.bare)
	r := &Result{Subject: sideOf(slices.Concat(c.samples[routeOf], c.samples[endpointsOf])), Floor: &floorSide, Bare: &bareSide}
	for _, kind := range []string{endpointsOf, routeOf} {
		side := sideOf(c.samples[kind])
		r.Kinds = append(r.Kinds, KindSpread{kind, side.Changes, side.Proxies})
		if side.Changes > 0 {
			r.bar("p99 event to ACK, "+kind, side.Proxies.P99, churnLimit, "ms")
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

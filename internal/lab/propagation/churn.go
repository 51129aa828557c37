package propagation

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
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
	samples := map[string][]Sample{}
	var base []Sample
	for n := 0; n < s.opts.ChurnEvents; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		kinds := []string{routeOf, endpointsOf}[:1+n/2%2]
		for _, kind := range kinds {
			sample, err := s.round(ctx, []step{{churnChange(s.mesh, kind, random.IntN(s.mesh.Services)), true}}, nil)
			if err != nil {
				return nil, err
			}
			samples[kind] = append(samples[kind], sample)
			n++
		}
		beside, err := s.besides(ctx, echo, samples[routeOf][len(samples[routeOf])-1].Concerned.Bytes)
		if err != nil {
			return nil, err
		}
		base = append(base, beside[0])
	}
	floorSide := sideOf(base)
	r := &Result{Subject: sideOf(append(append([]Sample(nil), samples[routeOf]...), samples[endpointsOf]...)), Floor: &floorSide}
	for _, kind := range []string{endpointsOf, routeOf} {
		side := sideOf(samples[kind])
		r.Kinds = append(r.Kinds, KindSpread{kind, side.Changes, side.Proxies})
		if side.Changes > 0 {
			r.bar("p99 event to ACK, "+kind, side.Proxies.P99, churnLimit, "ms")
		}
	}
	return r, nil
}

func churnChange(m *meshfiles.Mesh, kind string, i int) func() (meshfiles.Change, error) {
	if kind == endpointsOf {
		return func() (meshfiles.Change, error) { return m.ReplaceEndpoints(i) }
	}
	return func() (meshfiles.Change, error) { return m.ChangeRoute(i) }
}

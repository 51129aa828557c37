package propagation

import (
	"context"
	"fmt"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
)

// where says on which of the meshes a scenario runs.
type where uint8

const (
	everywhere where = iota
	smallest
	middle
	largest
	alone // it has meshes of its own
)

// Scenario is one kind of experiment.
type Scenario struct {
	Name, About string
	where       where
	run         func(context.Context, *session) (*Result, error)
	kubeOnly    bool                                                               // it needs Kubernetes' controllers
	own         func(ctx context.Context, o *Options, dir string) (*Result, error) // where it is alone
}

// Scenarios are all that there are, in the order in which they run.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "connect-herd", About: "all proxies connect at once", run: connectHerd},
		{Name: "endpoint", About: "one endpoint of one service is replaced", run: single(endpointSteps, (*meshfiles.Mesh).EndpointTwin, true)},
		{Name: "route", About: "one VirtualService changes", run: single(routeSteps, (*meshfiles.Mesh).RouteTwin, true)},
		{Name: "new-service", About: "a service is added", run: single(newServiceSteps, (*meshfiles.Mesh).NewServiceTwin, true)},
		{Name: "removed-service", About: "a service is removed", run: single(removedServiceSteps, (*meshfiles.Mesh).RemovedServiceTwin, false)},
		{Name: "destination-rule", About: "one DestinationRule changes", run: single(ruleSteps, (*meshfiles.Mesh).RuleTwin, false)},
		{Name: "churn", About: "routes and deployments change by the clock (smallest mesh)", where: smallest, run: churn},
		{Name: "storm", About: "thousands of endpoint events at once (middle mesh)", where: middle, run: storm},
		// Last of those on the middle mesh: the socket of the proxy that was stalled stays small.
		{Name: "stalled", About: "one proxy stops reading (middle mesh)", where: middle, run: stalled},
		{Name: "reconnect-herd", About: "the control plane is killed and comes back (largest mesh)", where: largest, run: reconnectHerd},
		{Name: "growth", About: "the same change in larger and larger meshes (its own)", where: alone, own: growth},
		{Name: memoryScenario, About: "what one more connected proxy takes, by services, with and without TLS (its own)", where: alone, own: memory},
		{Name: "locks", About: "the storm, with every wait for a lock written down (its own)", where: alone, own: locks},
		{Name: "airbnb", About: "deployments restart and routes change by the clock, with PILOT_ switches (--source kube; its own)", where: alone, kubeOnly: true, own: airbnb},
		{Name: "expedia", About: "Deployments of hundreds of pods restart (--source kube; its own)", where: alone, kubeOnly: true, own: expedia},
	}
}

// step is a part of a round; one of a round's is measured.
type step struct {
	change   func() (meshfiles.Change, error)
	measured bool
}

// steps gives the steps of the n-th round.
type steps func(m *meshfiles.Mesh, n int) []step

func endpointSteps(m *meshfiles.Mesh, n int) []step {
	return []step{{func() (meshfiles.Change, error) { return m.ReplaceEndpoint(n % m.Services) }, true}}
}

func routeSteps(m *meshfiles.Mesh, n int) []step {
	return []step{{func() (meshfiles.Change, error) { return m.ChangeRoute(n % m.Services) }, true}}
}

func ruleSteps(m *meshfiles.Mesh, n int) []step {
	return []step{{func() (meshfiles.Change, error) { return m.SetRule(n % m.Services) }, true}}
}

func newServiceSteps(m *meshfiles.Mesh, n int) []step {
	return addAndRemove(m, fmt.Sprintf("new-%d", n), true)
}

func removedServiceSteps(m *meshfiles.Mesh, n int) []step {
	return addAndRemove(m, fmt.Sprintf("old-%d", n), false)
}

// addAndRemove leaves the mesh as it was.
func addAndRemove(m *meshfiles.Mesh, name string, addMeasured bool) []step {
	return []step{
		{func() (meshfiles.Change, error) { return m.AddService(name) }, addMeasured},
		{func() (meshfiles.Change, error) { return m.RemoveService(name) }, !addMeasured},
	}
}

// Limits of the plan for single changes.
const (
	lastLimit        = 1.25 // x floor
	cpuLimit         = 1.3  // x floor
	bytesLimit       = 3 << 10
	unconcernedLimit = 0
)

// Limits of the plan for what carries changes, with many proxies: from an experiment with one message to
// each, whose clock stopped when the server had read the last ACK.
const (
	manyProxies  = 5000
	carrierLimit = 0.5 // x floor, CPU and last ACK
)

// single measures single changes, round by round in turn with the floor and the limit.
// The plan has bars for time and CPU of some kinds of changes only. Where the source is an API
// server, the floor hears from it, too: of the change's twin, objects of the same kinds written likewise.
func single(next steps, twin func(*meshfiles.Mesh) meshfiles.Twin, bars bool) func(context.Context, *session) (*Result, error) {
	return func(ctx context.Context, s *session) (*Result, error) {
		echo, err := s.place.echo(ctx, twin(s.mesh))
		if err != nil {
			return nil, err
		}
		defer echo.Stop()
		var cp, base, bare []Sample
		for n := range s.opts.Rounds + 1 {
			sample, err := s.round(ctx, next(s.mesh, n), s.cp.askHeard)
			if err != nil {
				return nil, err
			}
			beside, err := s.besides(ctx, echo, sample.Concerned.Bytes)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				continue // the first is to warm up
			}
			cp, base, bare = append(cp, sample), append(base, beside[0]), append(bare, beside[1])
		}
		floorSide, bareSide := sideOf(base), sideOf(bare)
		r := &Result{Subject: sideOf(cp), Floor: &floorSide, Bare: &bareSide}
		if bars {
			r.barOver("last proxy / floor", last, base, lastLimit)
		}
		if bars && s.cp.pid != 0 {
			r.barOver("CPU a change / floor", cpu, base, cpuLimit)
		}
		if bars && s.cp.process != nil && s.mesh.Proxies >= manyProxies {
			r.barOver("last ACK read / floor, many proxies", heard, base, carrierLimit)
			r.barOver("CPU a change / floor, many proxies", cpu, base, carrierLimit)
		}
		r.bar("bytes to a concerned proxy", r.Subject.Concerned.Bytes, bytesLimit, "B")
		r.bar("bytes to an unconcerned proxy", r.Subject.Unconcerned.Bytes, unconcernedLimit, "B")
		return r, nil
	}
}

// round takes the steps of one round and gives the measured one's sample, to which add may add.
func (s *session) round(ctx context.Context, list []step, add func(context.Context, *Sample) error) (out Sample, err error) {
	for _, st := range list {
		c, err := st.change()
		if err != nil {
			return Sample{}, err
		}
		sample, err := s.cp.measure(ctx, c.Wants, c.Apply)
		if err != nil {
			return Sample{}, fmt.Errorf("%s: %w", c.What, err)
		}
		if !st.measured {
			continue
		}
		if out = sample; add != nil {
			err = add(ctx, &out)
		}
		if err != nil {
			return Sample{}, fmt.Errorf("%s: %w", c.What, err)
		}
	}
	return out, nil
}

// besides measures the floor, with as many bytes, and bare TCP.
func (s *session) besides(ctx context.Context, echo *meshkube.Echo, bytes float64) (out [2]Sample, err error) {
	wants, apply, err := s.floor.prepare(0, bytes)
	if err != nil {
		return out, err
	}
	if out[0], err = s.floor.measure(ctx, wants, echo.Before(ctx, apply)); err != nil {
		return out, err
	}
	if err := s.floor.askHeard(ctx, &out[0]); err != nil {
		return out, err
	}
	if err := echo.Reset(ctx); err != nil {
		return out, err
	}
	out[1], err = s.bare.measure(ctx)
	return out, err
}

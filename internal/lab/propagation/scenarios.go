package propagation

import (
	"context"
	"fmt"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// meshChoice names the meshes of Options.Meshes on which a scenario runs.
type meshChoice uint8

const (
	eachMesh meshChoice = iota
	smallestMesh
	middleMesh
	largestMesh
	ownMeshes // none of them: the scenario creates its meshes
)

// Scenario is one situation that this experiment measures: a kind of change, or an event such as a restart. No other
// code knows a scenario by its name.
type Scenario struct {
	Name, About string
	meshes      meshChoice
	// measure runs the scenario on an open mesh. If meshes is ownMeshes, it is nil and measureOwnMeshes is set.
	measure          func(context.Context, *meshSession) (*results.Result, error)
	measureOwnMeshes func(ctx context.Context, o *Options, dir string) (*results.Result, error)
	kubeOnly         bool // it needs the controllers of Kubernetes
	restarts         bool // it restarts the control plane
	// seconds is about how long it takes on an idle machine; nil: as long as Options.Rounds single changes.
	seconds func(o *Options, mesh meshfiles.Shape) float64
	drawing results.Drawing // what the plots of its results show
}

// startsControlPlane reports whether a scenario starts or restarts the control plane, or sets its flags. It cannot
// measure a control plane that the lab does not start.
func (s *Scenario) startsControlPlane() bool { return s.meshes == ownMeshes || s.restarts }

// on reports whether a scenario runs on mesh i of n.
func (s *Scenario) on(i, n int) bool {
	switch s.meshes {
	case eachMesh:
		return true
	case smallestMesh:
		return i == 0
	case middleMesh:
		return i == n/2
	case largestMesh:
		return i == n-1
	case ownMeshes:
	}
	return false
}

// Scenarios lists all scenarios in the order in which they run. To add one, write a function in a new file of
// this package and a row here.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "connect-storm", About: "all proxies connect at once", measure: connectStorm, drawing: results.Drawing{Reached: "are configured"}},
		{Name: "endpoint", About: "one endpoint of one service is replaced", measure: single(endpointSteps, (*meshfiles.Mesh).EndpointShadow, true)},
		{Name: "route", About: "one VirtualService changes", measure: single(routeSteps, (*meshfiles.Mesh).RouteShadow, true)},
		{Name: "new-service", About: "a service is added", measure: single(newServiceSteps, (*meshfiles.Mesh).NewServiceShadow, true)},
		{Name: "removed-service", About: "a service is removed", measure: single(removedServiceSteps, (*meshfiles.Mesh).RemovedServiceShadow, false)},
		{Name: "destination-rule", About: "one DestinationRule changes", measure: single(ruleSteps, (*meshfiles.Mesh).RuleShadow, false)},
		{Name: "churn", About: "routes and endpoints change at fixed intervals (smallest mesh)", meshes: smallestMesh, measure: churn, seconds: churnSeconds},
		{
			Name: "storm", About: "thousands of endpoint events at once (middle mesh)", meshes: middleMesh, measure: storm, seconds: stormSeconds,
			drawing: results.Drawing{Reached: "have the final state"},
		},
		{ // The last scenario on the middle mesh, because the socket of the stalled proxy stays small.
			Name: "stalled", About: "one proxy stops reading (middle mesh)", meshes: middleMesh, measure: stalled,
			drawing: results.Drawing{Lines: [2]string{"other proxies, while one is stalled", "while none is stalled"}},
		},
		{
			Name: "reconnect-storm", About: "all proxies reconnect after a restart of the control plane (largest mesh)", meshes: largestMesh, measure: reconnectStorm,
			restarts: true, drawing: results.Drawing{Reached: "have reconnected", Lines: [2]string{"control plane", "connections only"}},
		},
		{Name: "growth", About: "the same change in meshes of increasing size", meshes: ownMeshes, measureOwnMeshes: growth, seconds: growthSeconds},
		{
			Name: "memory", About: "memory of one more connected proxy, by number of services, with and without TLS", meshes: ownMeshes, measureOwnMeshes: memory,
			seconds: memorySeconds, drawing: results.Drawing{Bars: "memory of the control plane for one more connected proxy"},
		},
		{Name: "locks", About: "the storm again, while every wait for a lock is recorded", meshes: ownMeshes, measureOwnMeshes: locks, seconds: stormSeconds},
		{Name: "airbnb", About: "Deployments restart and routes change at fixed intervals, by PILOT_ settings (--source kube)", meshes: ownMeshes, measureOwnMeshes: airbnb, kubeOnly: true},
		{Name: "expedia", About: "Deployments of hundreds of pods restart, by PILOT_ settings (--source kube)", meshes: ownMeshes, measureOwnMeshes: expedia, kubeOnly: true},
	}
}

func airbnb(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	return rollout.RunAirbnb(ctx, o.rolloutOptions(), dir)
}

func expedia(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	return rollout.RunExpedia(ctx, o.rolloutOptions(), dir)
}

// meshSession is an open session on one mesh, with the options of the run.
type meshSession struct {
	*session.Session
	opts *Options
}

// openMeshSession opens a session. Its result is not nil, so that it can be closed also after an error.
func openMeshSession(ctx context.Context, o *Options, dir string, shape meshfiles.Shape) (*meshSession, error) {
	s, err := session.Open(ctx, &o.Config, dir, shape)
	return &meshSession{s, o}, err
}

// rolloutOptions returns the options of expedia or airbnb, whichever runs next.
func (o *Options) rolloutOptions() *rollout.Options {
	out := &rollout.Options{
		Config: o.Config, Peer: o.Peer, Expedia: o.Rollout, Airbnb: o.Airbnb, Rounds: o.TrialRounds, Settings: o.settings, Defect: o.Defect,
		Quick: o.Quick, Version: o.Version, Budget: o.schedule.left(), Progress: o.Progress,
	}
	out.Step = o.Progress // the experiment estimates the time left
	return out
}

// step is one change of a round. One step of each round is measured.
type step struct {
	change   func() (meshfiles.Change, error)
	measured bool
}

// steps returns the steps of the n-th round.
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

// addAndRemove adds a service and removes it again; one of both is measured.
func addAndRemove(m *meshfiles.Mesh, name string, addMeasured bool) []step {
	return []step{
		{func() (meshfiles.Change, error) { return m.AddService(name) }, addMeasured},
		{func() (meshfiles.Change, error) { return m.RemoveService(name) }, !addMeasured},
	}
}

// Targets for single changes.
const (
	lastLimit        = 1.25 // x baseline
	cpuLimit         = 1.3  // x baseline
	bytesLimit       = 3 << 10
	unconcernedLimit = 0
)

// Targets for the transport, with many proxies. They were set by an experiment that sent one message to each
// proxy and stopped the clock when the server had read the last ACK.
const (
	manyProxies  = 5000
	carrierLimit = 0.5 // x baseline, CPU and last ACK
)

// single measures single changes, each round in turn with the baseline and bare TCP. Only some kinds of changes
// have targets for time and CPU. If the source is an API server, the baseline also waits for it: for a write to
// the change's shadow, objects of the same kinds in a namespace without proxies.
func single(next steps, shadow func(*meshfiles.Mesh) meshfiles.Shadow, targets bool) func(context.Context, *meshSession) (*results.Result, error) {
	return func(ctx context.Context, s *meshSession) (*results.Result, error) {
		echo, err := s.Location.Echo(ctx, shadow(s.Mesh))
		if err != nil {
			return nil, err
		}
		defer echo.Stop()
		var cp, base, bare []results.Sample
		for n := range s.opts.Rounds + 1 {
			sample, err := s.round(ctx, next(s.Mesh, n), s.CP.AskHeard)
			if err != nil {
				return nil, err
			}
			beside, err := s.besides(ctx, echo, sample.Concerned.Bytes)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				continue // warm-up
			}
			cp, base, bare = append(cp, sample), append(base, beside[0]), append(bare, beside[1])
		}
		baselineSide, bareSide := results.SideOf(base), results.SideOf(bare)
		r := &results.Result{Subject: results.SideOf(cp), Baseline: &baselineSide, Bare: &bareSide}
		if targets {
			r.AddRatioTarget("last proxy / baseline", results.LastOf, base, lastLimit)
		}
		if targets && s.CP.PID != 0 {
			r.AddRatioTarget("CPU a change / baseline", results.CPUOf, base, cpuLimit)
		}
		if targets && s.CP.Process != nil && s.Mesh.Proxies >= manyProxies {
			r.AddRatioTarget("last ACK read / baseline, many proxies", results.HeardOf, base, carrierLimit)
			r.AddRatioTarget("CPU a change / baseline, many proxies", results.CPUOf, base, carrierLimit)
		}
		r.AddTarget("bytes to a concerned proxy", r.Subject.Concerned.Bytes, bytesLimit, "B")
		r.AddTarget("bytes to an unconcerned proxy", r.Subject.Unconcerned.Bytes, unconcernedLimit, "B")
		return r, nil
	}
}

// round makes the changes of one round and returns the sample of the measured one. add may complete the sample.
func (s *meshSession) round(ctx context.Context, list []step, add func(context.Context, *results.Sample) error) (out results.Sample, err error) {
	for _, st := range list {
		c, err := st.change()
		if err != nil {
			return results.Sample{}, err
		}
		sample, err := s.CP.Measure(ctx, c.Wants, c.Apply)
		if err != nil {
			return results.Sample{}, fmt.Errorf("%s: %w", c.What, err)
		}
		if !st.measured {
			continue
		}
		if out = sample; add != nil {
			err = add(ctx, &out)
		}
		if err != nil {
			return results.Sample{}, fmt.Errorf("%s: %w", c.What, err)
		}
	}
	return out, nil
}

// besides measures the baseline with as many bytes, and bare TCP.
func (s *meshSession) besides(ctx context.Context, echo *meshkube.Echo, bytes float64) (out [2]results.Sample, err error) {
	wants, apply, err := s.Baseline.Prepare(0, bytes)
	if err != nil {
		return out, err
	}
	if out[0], err = s.Baseline.Measure(ctx, wants, echo.Before(ctx, apply)); err != nil {
		return out, err
	}
	if err := s.Baseline.AskHeard(ctx, &out[0]); err != nil {
		return out, err
	}
	if err := echo.Reset(ctx); err != nil {
		return out, err
	}
	out[1], err = s.Bare.Measure(ctx)
	return out, err
}

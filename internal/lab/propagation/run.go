package propagation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Run measures the chosen scenarios. It returns the results also if it ends early.
func Run(ctx context.Context, o Options) (*results.Report, error) {
	report := &results.Report{Schema: 3, Begun: time.Now().Format(time.RFC3339), Version: o.Version, CPUs: runtime.NumCPU(), Machine: experiment.ThisMachine(ctx, ""),
		Quick: o.Quick, Rounds: o.Rounds, Budget: o.Budget.Seconds(), Subject: o.External}
	if report.Subject == "" {
		report.Subject = "moonsail serve"
	}
	begun := time.Now()
	ctx, cancel := context.WithDeadlineCause(ctx, begun.Add(o.Budget-endTime), errBudget)
	defer cancel()
	err := run(ctx, &o, report)
	if err != nil && errors.Is(context.Cause(ctx), errBudget) && len(report.Results) > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("budget of %s spent: the scenarios after %s were not measured", o.Budget, report.Latest()))
		err = nil
	}
	report.Took = time.Since(begun).Seconds()
	report.Machine.LoadAfter = experiment.LoadAverage()
	if err != nil {
		report.Stopped = err.Error()
	}
	return report, err
}

// endTime is the part of the budget that is reserved for stopping processes.
const endTime = 5 * time.Second

func run(ctx context.Context, o *Options, report *results.Report) error {
	if err := o.CheckScenarios(); err != nil {
		return err
	}
	chosen, err := choose(o.Scenarios)
	if err != nil {
		return err
	}
	if len(o.Meshes) == 0 {
		return errors.New("no mesh to measure on")
	}
	if err := session.RaiseFileLimit(filesFor(o)); err != nil {
		return err
	}
	if o.Peer != nil {
		report.Peer = &results.PeerReport{Name: o.Peer.Name, Address: o.Peer.Address}
	}
	address, pid := o.External, o.ExternalPID
	if o.Peer != nil {
		address, pid = o.Peer.Address, o.Peer.PID
	}
	if address != "" {
		if err := session.CheckExternal(ctx, address, pid); err != nil {
			return err
		}
	}
	if left := o.leftOut(chosen); left != "" {
		report.Notes = append(report.Notes, left)
	}
	o.Meshes = o.measured()
	chosen = slices.DeleteFunc(chosen, func(s Scenario) bool { return o.unsupported(&s) != nil })
	o.schedule = newSchedule(o, chosen)
	if o.Progress != nil {
		o.Step = func(label string) { o.Progress(fmt.Sprintf("%s; %s", label, o.schedule)) }
	}
	dir, err := meshfiles.TempDir("moonsail-lab-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // best effort: it is a temporary directory
	for i, shape := range o.Meshes {
		list := slices.DeleteFunc(slices.Clone(chosen), func(s Scenario) bool { return !s.on(i, len(o.Meshes)) })
		if len(list) == 0 {
			continue
		}
		if err := runBoth(ctx, o, filepath.Join(dir, fmt.Sprint(i)), shape, list, report); err != nil {
			return err
		}
	}
	resume, err := o.Peer.Pause()
	if err != nil {
		return err
	}
	defer resume()
	return runOwnMeshes(ctx, o, filepath.Join(dir, "own"), chosen, report)
}

// runBoth runs scenarios on one mesh with our control plane, and then with the peer if there is one.
func runBoth(ctx context.Context, o *Options, dir string, shape meshfiles.Shape, list []Scenario, report *results.Report) error {
	resume, err := o.Peer.Pause()
	if err != nil {
		return err
	}
	err = runMesh(ctx, o, dir, shape, list, report)
	resume()
	if err != nil {
		return err
	}
	runPeer(ctx, o, dir, shape, list, report)
	return ctx.Err()
}

// runOwnMeshes runs the scenarios that create their meshes.
func runOwnMeshes(ctx context.Context, o *Options, dir string, chosen []Scenario, report *results.Report) error {
	for _, sc := range chosen {
		if sc.meshes != ownMeshes {
			continue
		}
		r, err := sc.measureOwnMeshes(ctx, o, dir)
		if r != nil { // a trial that ended early has the rounds before
			r.Scenario, r.Drawing = sc.Name, sc.drawing
			add(o, report, *r)
		}
		if err != nil {
			return fmt.Errorf("scenario %s: %w", sc.Name, err)
		}
		o.schedule.over(sc.expected(o, o.Meshes[len(o.Meshes)/2]))
	}
	return nil
}

// choose finds scenarios by name. Without names it returns all.
func choose(names []string) ([]Scenario, error) {
	all := Scenarios()
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("unknown scenario %q: use %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(s Scenario) bool { return !slices.Contains(names, s.Name) }), nil
}

// runMesh runs scenarios on one mesh.
func runMesh(ctx context.Context, o *Options, dir string, shape meshfiles.Shape, list []Scenario, report *results.Report) error {
	o.progress("%s: starting", results.MeshName(shape))
	s, err := openMeshSession(ctx, o, dir, shape)
	if err != nil {
		return fmt.Errorf("mesh %s: %w", results.MeshName(shape), err)
	}
	defer s.Close()
	if err := s.Connect(ctx, true); err != nil {
		return fmt.Errorf("mesh %s: %w", s, err)
	}
	for _, sc := range list {
		o.progress("%s: %s (%s)", s, sc.Name, sc.About)
		r, err := s.runScenario(ctx, &sc)
		if err != nil {
			return fmt.Errorf("mesh %s, scenario %s: %w", s, sc.Name, err)
		}
		r.Scenario, r.Drawing, r.Mesh = sc.Name, sc.drawing, shape
		o.progress("%s: %s: comparing final states", s, sc.Name)
		if r.State, err = s.FinalState(ctx); err != nil {
			return fmt.Errorf("mesh %s, final state after %s: %w", s, sc.Name, err)
		}
		add(o, report, *r)
		o.schedule.over(sc.expected(o, shape))
	}
	return nil
}

// runScenario runs one scenario. The peak of memory is that since its beginning, unless the scenario sets another:
// connect-storm began before.
func (s *meshSession) runScenario(ctx context.Context, sc *Scenario) (*results.Result, error) {
	if s.CP.PID != 0 {
		child.ResetPeak(s.CP.PID)
	}
	r, err := sc.measure(ctx, s)
	if err == nil && r.Subject.PeakRSS == 0 {
		r.Subject.PeakRSS = s.CP.Memory().Peak
	}
	return r, err
}

// add appends a result to the report.
func add(o *Options, report *results.Report, result results.Result) {
	report.Results = append(report.Results, result)
	if o.Finished != nil {
		o.Finished(result)
	}
}

// filesFor returns how many files must be open at the same time: three connections for each proxy (control plane,
// baseline, bare TCP), and some more.
func filesFor(o *Options) uint64 {
	n := max(o.Rollout.Proxies, o.Airbnb.Proxies)
	for _, m := range o.Meshes {
		n = max(n, 3*(m.Proxies+m.Bystanders))
	}
	return uint64(max(n, len(o.Growth)*o.GrowthProxy, 3*o.MemoryProxy) + 512) //nolint:gosec // the number is small
}

// CheckScenarios reports a name that is unknown, or names a scenario that cannot run with these options.
func (o *Options) CheckScenarios() error {
	chosen, err := choose(o.Scenarios)
	for _, s := range chosen {
		if why := cmp.Or(o.unsupported(&s), o.incomparable(&s)); why != nil && len(o.Scenarios) > 0 {
			return why
		}
	}
	return err
}

// incomparable returns why a scenario cannot be compared with the peer, or nil. Such a scenario runs with our control
// plane only, unless the user chose it by name.
func (o *Options) incomparable(s *Scenario) error {
	if o.Peer == nil || !s.startsControlPlane() || s.kubeOnly {
		return nil
	}
	return fmt.Errorf("scenario %s: cannot be compared with %s, which the lab does not start: leave out the scenario or --target", s.Name, o.Peer.Name)
}

// unsupported returns why a scenario cannot be measured, or nil.
func (o *Options) unsupported(s *Scenario) error {
	switch kube := o.Source == session.SourceKube; {
	case s.kubeOnly && !kube:
		return fmt.Errorf("scenario %s: needs --source kube", s.Name)
	case s.kubeOnly && o.External != "":
		return fmt.Errorf("scenario %s: compares settings of the control plane that the lab starts: use --target NAME=%s to measure another one in turn", s.Name, o.External)
	case o.External != "" && s.startsControlPlane():
		return fmt.Errorf("scenario %s: excludes --target: it needs a control plane that the lab starts", s.Name)
	}
	return nil
}

// runPeer runs scenarios on one mesh with the peer. A failure is part of its report and ends only the peer's
// measurements.
func runPeer(ctx context.Context, o *Options, dir string, shape meshfiles.Shape, list []Scenario, report *results.Report) {
	list = slices.DeleteFunc(slices.Clone(list), func(s Scenario) bool { return s.startsControlPlane() })
	if o.Peer == nil || report.Peer.Stopped != "" || len(list) == 0 {
		return
	}
	its, found := *o, &results.Report{}
	its.External, its.ExternalPID, its.Peer = o.Peer.Address, o.Peer.PID, nil
	if err := runMesh(ctx, &its, filepath.Join(dir, "peer"), shape, list, found); err != nil {
		report.Peer.Stopped = err.Error()
	}
	report.Peer.Results = append(report.Peer.Results, found.Results...)
}

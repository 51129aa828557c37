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
)

// Run measures. It returns what it has, also where it ends early.
func Run(ctx context.Context, o Options) (*Report, error) {
	report := &Report{Schema: 2, Begun: time.Now().Format(time.RFC3339), Version: o.Version, CPUs: runtime.NumCPU(), Machine: experiment.ThisMachine(ctx, ""),
		Quick: o.Quick, Rounds: o.Rounds, Budget: o.Budget.Seconds(), Target: o.Target}
	if report.Target == "" {
		report.Target = "moonsail serve"
	}
	begun := time.Now()
	ctx, cancel := context.WithDeadlineCause(ctx, begun.Add(o.Budget-endTime), errBudget)
	defer cancel()
	err := run(ctx, &o, report)
	if err != nil && errors.Is(context.Cause(ctx), errBudget) && len(report.Results) > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("the budget of %s was spent before all was measured: what comes after %s is left out", o.Budget, report.last()))
		err = nil
	}
	report.Took = time.Since(begun).Seconds()
	report.Machine.LoadAfter = experiment.LoadAverage()
	if err != nil {
		report.Stopped = err.Error()
	}
	return report, err
}

// endTime is what is kept of the budget for stopping what was started.
const endTime = 5 * time.Second

// last is the last result, for people.
func (r *Report) last() string {
	x := &r.Results[len(r.Results)-1]
	return x.Scenario + " on mesh " + x.MeshName()
}

func run(ctx context.Context, o *Options, report *Report) error {
	if err := o.CheckScenarios(); err != nil {
		return err
	}
	chosen, err := choose(o.Scenarios)
	if err != nil {
		return err
	}
	if len(o.Meshes) == 0 {
		return errors.New("there is no mesh to measure on")
	}
	if err := raiseFileLimit(filesFor(o)); err != nil {
		return err
	}
	if o.Peer != nil {
		report.Peer = &PeerReport{Name: o.Peer.Name, Address: o.Peer.Address}
	}
	if err := o.checkTarget(ctx); err != nil {
		return err
	}
	if left := o.leftOut(chosen); left != "" {
		report.Notes = append(report.Notes, left)
	}
	o.Meshes = o.measured()
	chosen = slices.DeleteFunc(chosen, func(s Scenario) bool { return o.cannot(&s) != nil })
	o.schedule = newSchedule(o, chosen)
	dir, err := meshfiles.TempDir("moonsail-lab-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory; the system removes it in the end
	for i, shape := range o.Meshes {
		list := slices.DeleteFunc(slices.Clone(chosen), func(s Scenario) bool { return !s.on(i, len(o.Meshes)) })
		if len(list) == 0 {
			continue
		}
		if err := runBoth(ctx, o, filepath.Join(dir, fmt.Sprint(i)), shape, list, report); err != nil {
			return err
		}
	}
	resume, err := o.Peer.pause()
	if err != nil {
		return err
	}
	defer resume()
	return runAlone(ctx, o, filepath.Join(dir, "alone"), chosen, report)
}

// runBoth runs scenarios on one mesh, with ours and then with the peer, if there is one.
func runBoth(ctx context.Context, o *Options, dir string, shape meshfiles.Shape, list []Scenario, report *Report) error {
	resume, err := o.Peer.pause()
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

// runAlone runs the scenarios that make their own meshes.
func runAlone(ctx context.Context, o *Options, dir string, chosen []Scenario, report *Report) error {
	for _, sc := range chosen {
		if sc.where != alone {
			continue
		}
		r, err := sc.own(ctx, o, dir)
		if r != nil { // of a trial that ended early there are the rounds before
			r.Scenario = sc.Name
			report.add(o, *r)
		}
		if err != nil {
			return fmt.Errorf("scenario %s: %w", sc.Name, err)
		}
		o.schedule.over(o.expect(&sc, o.Meshes[len(o.Meshes)/2]))
	}
	return nil
}

// on tells whether a scenario runs on mesh i of n.
func (s *Scenario) on(i, n int) bool {
	switch s.where {
	case everywhere:
		return true
	case smallest:
		return i == 0
	case middle:
		return i == n/2
	case largest:
		return i == n-1
	}
	return false
}

// choose finds scenarios by name; none named is all.
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
			return nil, fmt.Errorf("there is no scenario %q; there are %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(s Scenario) bool { return !slices.Contains(names, s.Name) }), nil
}

// runMesh runs scenarios on one mesh.
func runMesh(ctx context.Context, o *Options, dir string, shape meshfiles.Shape, list []Scenario, report *Report) error {
	o.progress("%s: starting", meshName(shape))
	s, err := openSession(ctx, o, dir, shape)
	if err != nil {
		return fmt.Errorf("mesh %s: %w", meshName(shape), err)
	}
	defer s.close()
	if err := s.connect(ctx, true); err != nil {
		return fmt.Errorf("mesh %s: %w", s, err)
	}
	for _, sc := range list {
		o.progress("%s: %s (%s)", s, sc.Name, sc.About)
		r, err := s.runScenario(ctx, &sc)
		if err != nil {
			return fmt.Errorf("mesh %s, scenario %s: %w", s, sc.Name, err)
		}
		r.Scenario, r.Mesh = sc.Name, shape
		o.progress("%s: %s: comparing final states", s, sc.Name)
		if r.State, err = s.finalState(ctx); err != nil {
			return fmt.Errorf("mesh %s, final state after %s: %w", s, sc.Name, err)
		}
		report.add(o, *r)
		o.schedule.over(o.expect(&sc, shape))
	}
	return nil
}

// runScenario runs one. Its peak of memory is since it began, unless it says otherwise: the connect herd began
// before.
func (s *session) runScenario(ctx context.Context, sc *Scenario) (*Result, error) {
	if s.cp.pid != 0 {
		child.ResetPeak(s.cp.pid)
	}
	r, err := sc.run(ctx, s)
	if err == nil && r.Subject.PeakRSS == 0 {
		r.Subject.PeakRSS = s.cp.memory().Peak
	}
	return r, err
}

func (r *Report) add(o *Options, result Result) {
	r.Results = append(r.Results, result)
	if o.Finished != nil {
		o.Finished(result)
	}
}

// filesFor is the number of files that must be open at the same time: three connections
// a proxy (control plane, floor and limit), each seen from here, and some more.
func filesFor(o *Options) uint64 {
	n := max(o.Rollout.Proxies, o.Airbnb.Proxies)
	for _, m := range o.Meshes {
		n = max(n, 3*(m.Proxies+m.Bystanders))
	}
	return uint64(max(n, len(o.Growth)*o.GrowthProxy, 3*o.MemoryProxy) + 512) //nolint:gosec // it is small
}

// CheckScenarios tells which name is none of a scenario, or of one that cannot be measured with
// these options.
func (o *Options) CheckScenarios() error {
	chosen, err := choose(o.Scenarios)
	for _, s := range chosen {
		if why := cmp.Or(o.cannot(&s), o.alone(&s)); why != nil && len(o.Scenarios) > 0 {
			return why
		}
	}
	return err
}

// alone says why a scenario cannot be compared with the control plane beside; nil: it can. Where
// nobody asked for it by name it is measured with ours alone.
func (o *Options) alone(s *Scenario) error {
	if o.Peer == nil || !s.needsOurs() || s.kubeOnly {
		return nil
	}
	return fmt.Errorf("scenario %s cannot be compared with %s, which the lab does not start: leave it or --target out", s.Name, o.Peer.Name)
}

// cannot says why a scenario cannot be measured; nil: it can.
func (o *Options) cannot(s *Scenario) error {
	switch kube := o.Source == SourceKube; {
	case s.kubeOnly && !kube:
		return fmt.Errorf("scenario %s needs --source kube", s.Name)
	case s.kubeOnly && o.Target != "":
		return fmt.Errorf("scenario %s compares settings of the control plane that the lab starts: with a name, --target NAME=%s, another one is measured beside", s.Name, o.Target)
	case o.Target != "" && s.needsOurs():
		return fmt.Errorf("scenario %s is for control planes that the lab starts itself, not for --target", s.Name)
	}
	return nil
}

// needsOurs: a scenario starts and kills the control plane, or tells it how to run.
func (s *Scenario) needsOurs() bool { return s.where == alone || s.Name == "reconnect-herd" }

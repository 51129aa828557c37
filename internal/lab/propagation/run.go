package propagation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Run measures. It returns what it has, also where it ends early.
func Run(ctx context.Context, o Options) (*Report, error) {
	report := &Report{Schema: 1, Begun: time.Now().Format(time.RFC3339), Version: o.Version, CPUs: runtime.NumCPU(), Quick: o.Quick, Rounds: o.Rounds, Target: o.Target}
	if report.Target == "" {
		report.Target = "moonsail serve"
	}
	begun := time.Now()
	err := run(ctx, &o, report)
	report.Took = time.Since(begun).Seconds()
	if err != nil {
		report.Stopped = err.Error()
	}
	return report, err
}

func run(ctx context.Context, o *Options, report *Report) error {
	if err := CheckScenarios(o.Scenarios, o.Source); err != nil {
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
	if o.Target != "" { // there is nothing to start
		if o.Source != SourceKube { // and one directory
			o.Meshes = o.Meshes[:1]
		}
		chosen = slices.DeleteFunc(chosen, func(s Scenario) bool { return s.where == alone || s.Name == "reconnect-herd" })
	}
	if o.Source == SourceKube { // it has one mesh at a time
		chosen = slices.DeleteFunc(chosen, func(s Scenario) bool { return s.Name == "growth" })
	} else {
		chosen = slices.DeleteFunc(chosen, func(s Scenario) bool { return s.kubeOnly })
	}
	dir, err := os.MkdirTemp("", "moonsail-lab-")
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
		if err != nil {
			return fmt.Errorf("scenario %s: %w", sc.Name, err)
		}
		r.Scenario = sc.Name
		report.add(o, *r)
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
			return nil, fmt.Errorf("there is no scenario %q; there are %v", n, known)
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
		r, err := sc.run(ctx, s)
		if err != nil {
			return fmt.Errorf("mesh %s, scenario %s: %w", s, sc.Name, err)
		}
		r.Scenario, r.Mesh = sc.Name, shape
		o.progress("%s: %s: comparing final states", s, sc.Name)
		if r.State, err = s.finalState(ctx); err != nil {
			return fmt.Errorf("mesh %s, final state after %s: %w", s, sc.Name, err)
		}
		report.add(o, *r)
	}
	return nil
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
	return uint64(max(n, len(o.Growth)*o.GrowthProxy) + 512) //nolint:gosec // it is small
}

// CheckScenarios tells which name is none of a scenario, or of one that needs another source.
func CheckScenarios(names []string, source Source) error {
	chosen, err := choose(names)
	for _, s := range chosen {
		if len(names) > 0 && s.kubeOnly && source != SourceKube {
			return fmt.Errorf("scenario %s needs --source kube", s.Name)
		}
	}
	return err
}

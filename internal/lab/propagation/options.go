// Package propagation measures how long changes take from a file to every proxy's ACK,
// and what they cost: moonsail-lab propagation.
//
// It writes a mesh as a directory of YAML, has a control plane serve it, connects
// simulated sidecars, and changes one thing at a time. Beside it in the same run stands
// the floor, a server that computes nothing (package floor), measured by the same
// clients at the same time, so that noise hits both and ratios mean something.
package propagation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Options are what a run is told. Those of DefaultOptions and QuickOptions are good.
type Options struct {
	Scenarios []string          // names; see Scenarios
	Meshes    []meshfiles.Shape // ascending; single changes run on each
	Rounds    int               // measured changes a scenario
	Quick     bool

	ChurnEvents int     // changes of the churn scenario
	ChurnSpeed  float64 // 1: an endpoint change each 10 s, a route each 5 s
	StormEvents int
	Memory      []int // services; ascending
	MemoryProxy int   // proxies
	Growth      []int // services; ascending
	GrowthMost  int   // an API server is not given more, as it takes minutes for them; 0: it is
	GrowthProxy int   // proxies
	Rollout     Rollout
	Airbnb      Airbnb
	TrialRounds int // of expedia and airbnb, where they fit into the time

	// Budget bounds the whole run. What would not end in time is left out.
	Budget time.Duration
	// Defect plants a slow control plane into expedia and airbnb: the report must show it.
	Defect bool

	// Programs are the servers: control planes and what they are compared with.
	Programs child.Programs
	// TLS: streams have TLS, and each proxy the certificate of its namespace. The floor's and
	// the limit's do not.
	TLS bool
	// ServeFlags are added to those of the control plane.
	ServeFlags []string
	// Target is another control plane's address. It is not started, and reads Dir.
	Target    string
	TargetPID int
	Dir       string // for the mesh; empty: a temporary one
	// Peer is measured beside ours; nil: none. It needs SourceKube, and no Target.
	Peer *Peer

	// Source is where the mesh is written, and read from: a directory (empty, too), or the
	// API server of Kubeconfig, which must not hold another mesh of the lab.
	Source     Source
	Kubeconfig string

	Version string

	Progress func(label string) // told what is being done; may be nil
	Finished func(Result)       // told each result as it is there; may be nil

	schedule *schedule
	settings []string // of expedia and airbnb, by name; nil: all
}

// Rollout is the size of Expedia's case: Deployments of so many pods each, of which all but
// the last restart while that is scaled to half.
type Rollout struct{ Deployments, Pods, Proxies int }

// Airbnb is the size of Airbnb's case: each setting for that long in each round, with changes
// so many times as often as in theirs (a restart each 10 s, a route each 5 s).
type Airbnb struct {
	Rollout
	Time  time.Duration
	Speed float64
}

// ParseRollout reads "3x500x500": deployments x pods x proxies.
func ParseRollout(text string) (r Rollout, err error) {
	parts := strings.Split(strings.TrimSpace(text), "x")
	for i, into := range []*int{&r.Deployments, &r.Pods, &r.Proxies} {
		if len(parts) == 3 && err == nil {
			*into, err = strconv.Atoi(parts[i])
		}
	}
	if err != nil || r.Deployments < 2 || r.Pods < 2 || r.Proxies < 1 {
		return Rollout{}, fmt.Errorf("a rollout is DEPLOYMENTSxPODSxPROXIES, at least 2x2x1, for example 3x500x500, not %q", text)
	}
	return r, nil
}

// String is as ParseRollout reads it.
func (r Rollout) String() string { return fmt.Sprintf("%dx%dx%d", r.Deployments, r.Pods, r.Proxies) }

// Budgets of a run.
const (
	FullBudget  = 20 * time.Minute
	QuickBudget = 2 * time.Minute
)

// DefaultOptions are the plan's sizes.
func DefaultOptions() Options {
	return Options{
		Meshes: []meshfiles.Shape{shape(50, 500), shape(500, 1000), shape(500, 5000)},
		Rounds: 11, ChurnEvents: 60, ChurnSpeed: 10, StormEvents: 20_000,
		Growth: []int{100, 1000, 5000, 20_000}, GrowthMost: 5000, GrowthProxy: 200,
		Memory: []int{50, 500, 2000}, MemoryProxy: 1000,
		Rollout: Rollout{3, 500, 500},
		Airbnb:  Airbnb{Rollout{50, 10, 100}, 25 * time.Second, 4}, TrialRounds: 5, Budget: FullBudget,
	}
}

// QuickOptions take about a minute.
func QuickOptions() Options {
	return Options{
		Meshes: []meshfiles.Shape{shape(20, 50), shape(100, 200)}, Quick: true,
		Rounds: 10, ChurnEvents: 12, ChurnSpeed: 50, StormEvents: 1000,
		Growth: []int{50, 500}, GrowthMost: 5000, GrowthProxy: 40,
		Memory: []int{20, 200}, MemoryProxy: 200,
		Rollout: Rollout{2, 30, 100},
		Airbnb:  Airbnb{Rollout{8, 4, 20}, 3 * time.Second, 10}, TrialRounds: 5, Budget: QuickBudget,
	}
}

// shape is a mesh of that size with a few bystanders.
func shape(services, proxies int) meshfiles.Shape {
	return meshfiles.Shape{Services: services, Proxies: proxies, Bystanders: min(20, max(2, proxies/50))}
}

// ParseMeshes reads "50x500", "500x1000": services x proxies, ascending by what all of these hold.
func ParseMeshes(list []string) (out []meshfiles.Shape, err error) {
	for _, text := range list {
		a, b, ok := strings.Cut(strings.TrimSpace(text), "x")
		services, err1 := strconv.Atoi(a)
		proxies, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil || services < 1 || proxies < 1 {
			return nil, fmt.Errorf("a mesh is SERVICESxPROXIES, for example 50x500, not %q", text)
		}
		next := shape(services, proxies)
		if n := len(out); n > 0 && out[n-1].Services*out[n-1].Proxies >= services*proxies {
			return nil, fmt.Errorf("meshes are ascending, and each is there once: %s cannot come after %s", meshName(next), meshName(out[n-1]))
		}
		out = append(out, next)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no mesh to measure on: name some, for example 50x500")
	}
	return out, nil
}

// CheckGrowth tells what is wrong with sizes.
func CheckGrowth(sizes []int) error {
	ascending := slices.IsSorted(sizes) && len(slices.Compact(slices.Clone(sizes))) == len(sizes)
	if len(sizes) == 0 || sizes[0] < 1 || !ascending {
		return fmt.Errorf("sizes are numbers of services, 1 and more, ascending, for example 100,20000: not %v", sizes)
	}
	return nil
}

// progress tells what is being done, and the time left.
func (o *Options) progress(format string, args ...any) {
	o.say("%s; %s", fmt.Sprintf(format, args...), o.schedule)
}

// say tells what is being done.
func (o *Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

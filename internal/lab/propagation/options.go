package propagation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Options configure a run. DefaultOptions and QuickOptions return valid ones.
type Options struct {
	session.Config

	Scenarios []string          // names of Scenarios; empty: all
	Meshes    []meshfiles.Shape // ascending; scenarios with single changes run on each
	Rounds    int               // measured changes in each scenario
	Quick     bool

	ChurnEvents int     // changes of the churn scenario
	ChurnSpeed  float64 // 1: an endpoint change every 10 s and a route change every 5 s
	StormEvents int
	Memory      []int // services; ascending
	MemoryProxy int   // proxies
	Growth      []int // services; ascending
	GrowthMost  int   // limit of Growth with SourceKube, because more take minutes; 0: no limit
	GrowthProxy int   // proxies
	Rollout     rollout.Size
	Airbnb      rollout.Airbnb
	TrialRounds int // rounds of expedia and airbnb, if they fit into the budget

	// Budget limits the time of the run. What does not fit is left out.
	Budget time.Duration
	// Defect makes the control plane of expedia and airbnb slow, to test that the report shows it.
	Defect bool

	// Peer is another control plane that is measured in turn with ours. It needs SourceKube and an empty Target.
	Peer *session.Peer

	Version string

	Progress func(label string)   // is called with the current step and the time left; may be nil
	Finished func(results.Result) // is called with each result; may be nil

	schedule *schedule
	settings []string // names of the settings of expedia and airbnb to measure; nil: all
}

// Time limits of a run.
const (
	FullBudget  = 20 * time.Minute
	QuickBudget = 2 * time.Minute
)

// DefaultOptions returns the sizes of docs/performance.md.
func DefaultOptions() Options {
	return Options{
		Meshes: []meshfiles.Shape{meshOf(50, 500), meshOf(500, 1000), meshOf(500, 5000)},
		Rounds: 11, ChurnEvents: 60, ChurnSpeed: 10, StormEvents: 20_000,
		Growth: []int{100, 1000, 5000, 20_000}, GrowthMost: 5000, GrowthProxy: 200,
		Memory: []int{50, 500, 2000}, MemoryProxy: 1000,
		Rollout: sizeOf(3, 500, 500),
		Airbnb:  rollout.Airbnb{Size: sizeOf(50, 10, 100), Time: 25 * time.Second, Speed: 4}, TrialRounds: 5, Budget: FullBudget,
	}
}

// QuickOptions returns sizes for a run of about a minute.
func QuickOptions() Options {
	return Options{
		Meshes: []meshfiles.Shape{meshOf(20, 50), meshOf(100, 200)}, Quick: true,
		Rounds: 10, ChurnEvents: 12, ChurnSpeed: 50, StormEvents: 1000,
		Growth: []int{50, 500}, GrowthMost: 5000, GrowthProxy: 40,
		Memory: []int{20, 200}, MemoryProxy: 200,
		Rollout: sizeOf(2, 30, 100),
		Airbnb:  rollout.Airbnb{Size: sizeOf(8, 4, 20), Time: 3 * time.Second, Speed: 10}, TrialRounds: 5, Budget: QuickBudget,
	}
}

func sizeOf(deployments, pods, proxies int) rollout.Size {
	return rollout.Size{Deployments: deployments, Pods: pods, Proxies: proxies}
}

// meshOf returns a mesh of that size with a few bystanders: proxies that changes do not concern.
func meshOf(services, proxies int) meshfiles.Shape {
	return meshfiles.Shape{Services: services, Proxies: proxies, Bystanders: min(20, max(2, proxies/50))}
}

// ParseMeshes reads meshes such as "50x500": services x proxies. They ascend by the product of both.
func ParseMeshes(list []string) (out []meshfiles.Shape, err error) {
	for _, text := range list {
		a, b, ok := strings.Cut(strings.TrimSpace(text), "x")
		services, err1 := strconv.Atoi(a)
		proxies, err2 := strconv.Atoi(b)
		if !ok || err1 != nil || err2 != nil || services < 1 || proxies < 1 {
			return nil, fmt.Errorf("%q: use SERVICESxPROXIES, for example 50x500", text)
		}
		next := meshOf(services, proxies)
		if n := len(out); n > 0 && out[n-1].Services*out[n-1].Proxies >= services*proxies {
			return nil, fmt.Errorf("%s after %s: list each mesh once, in ascending order", results.MeshName(next), results.MeshName(out[n-1]))
		}
		out = append(out, next)
	}
	if len(out) == 0 {
		return nil, errors.New("no mesh: name at least one, for example 50x500")
	}
	return out, nil
}

// CheckGrowth validates the sizes of scenario growth.
func CheckGrowth(sizes []int) error {
	ascending := slices.IsSorted(sizes) && len(slices.Compact(slices.Clone(sizes))) == len(sizes)
	if len(sizes) == 0 || sizes[0] < 1 || !ascending {
		return fmt.Errorf("%v: use ascending numbers of services, for example 100,20000", sizes)
	}
	return nil
}

// progress reports the current step and the time left.
func (o *Options) progress(format string, args ...any) { o.Stepf(format, args...) }

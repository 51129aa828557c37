package propagation

import (
	"errors"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// errBudget is the cause that ends a run after its budget.
var errBudget = errors.New("time budget spent")

// schedule estimates the time of a run. Expectations are seconds on an idle machine; the time left is scaled by
// how long the finished part took.
type schedule struct {
	begun          time.Time
	end            time.Time // of the budget
	expected, done float64
	trials         int // expedia and airbnb, if they have not begun
}

// newSchedule estimates the chosen scenarios on all meshes.
func newSchedule(o *Options, chosen []Scenario) *schedule {
	c := &schedule{begun: time.Now(), end: time.Now().Add(o.Budget)}
	for i, mesh := range o.Meshes {
		for _, s := range chosen {
			if s.on(i, len(o.Meshes)) {
				c.expected += s.expected(o, mesh)
			}
		}
	}
	for _, s := range chosen {
		if s.meshes == ownMeshes {
			c.expected += s.expected(o, o.Meshes[len(o.Meshes)/2])
		}
		if s.kubeOnly {
			c.trials++
		}
	}
	return c
}

// expected is about how many seconds a scenario takes on a mesh.
func (s *Scenario) expected(o *Options, mesh meshfiles.Shape) float64 {
	if s.seconds != nil {
		return s.seconds(o, mesh)
	}
	return changeSeconds(mesh) * float64(5+o.Rounds)
}

// changeSeconds is about how long a single change takes: three servers send it to each proxy.
func changeSeconds(mesh meshfiles.Shape) float64 { return 0.1 + 0.001*float64(mesh.Proxies) }

func churnSeconds(o *Options, mesh meshfiles.Shape) float64 {
	return changeSeconds(mesh) * float64(o.ChurnEvents)
}

func stormSeconds(o *Options, mesh meshfiles.Shape) float64 {
	return 10*changeSeconds(mesh) + float64(o.StormEvents)/o.stormSpeed()
}

func memorySeconds(o *Options, _ meshfiles.Shape) float64 {
	return 2 * float64(len(o.Memory)) * (4 + 0.01*float64(o.MemoryProxy))
}

func growthSeconds(o *Options, _ meshfiles.Shape) float64 {
	n := 0.0
	for _, services := range o.Growth {
		n += 3 + 0.002*float64(services) + 0.3*float64(o.Rounds)
	}
	return n
}

// stormSpeed is the number of storm events per second, repeats included.
func (o *Options) stormSpeed() float64 {
	if o.Source == session.SourceKube { // it stores events one by one, also those of the baseline
		return 50
	}
	return 500
}

// over records the end of a scenario.
func (c *schedule) over(expected float64) { c.done += expected }

// left returns the budget of the next trial: an equal share of the time left.
func (c *schedule) left() time.Duration {
	n := max(c.trials, 1)
	c.trials--
	return max(time.Until(c.end)/time.Duration(n), time.Second)
}

// String describes the time left.
func (c *schedule) String() string {
	rest := time.Duration((c.expected - c.done) * float64(time.Second))
	if c.done > 0 {
		rest = time.Duration(float64(time.Since(c.begun)) * (c.expected - c.done) / c.done)
	}
	return fmt.Sprintf("about %s left", min(max(rest, 0), max(time.Until(c.end), 0)).Round(time.Second))
}

package propagation

import (
	"errors"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// errBudget ends what does not fit.
var errBudget = errors.New("the time budget is spent")

// schedule is how long all is going to take. Expectations are in seconds of a machine that has
// time; what is left is told by how the part that is over went.
type schedule struct {
	begun          time.Time
	end            time.Time // of the budget
	expected, done float64
	trials         int // that have not begun
}

// newSchedule expects the scenarios that were chosen on all meshes.
func newSchedule(o *Options, chosen []Scenario) *schedule {
	c := &schedule{begun: time.Now(), end: time.Now().Add(o.Budget)}
	for i, mesh := range o.Meshes {
		for _, s := range chosen {
			if s.on(i, len(o.Meshes)) {
				c.expected += o.expect(&s, mesh)
			}
		}
	}
	for _, s := range chosen {
		if s.where == alone {
			c.expected += o.expect(&s, o.Meshes[len(o.Meshes)/2])
		}
		if s.kubeOnly {
			c.trials++
		}
	}
	return c
}

// expect is what a scenario takes, very about: a change goes to each proxy, from three servers.
func (o *Options) expect(s *Scenario, mesh meshfiles.Shape) float64 {
	each := 0.1 + 0.001*float64(mesh.Proxies)
	switch s.Name {
	case "storm", "locks":
		return 10*each + float64(o.StormEvents)/o.stormSpeed()
	case "churn":
		return each * float64(o.ChurnEvents)
	case memoryScenario:
		return 2 * float64(len(o.Memory)) * (4 + 0.01*float64(o.MemoryProxy))
	case "growth":
		n := 0.0
		for _, services := range o.Growth {
			n += 3 + 0.002*float64(services) + 0.3*float64(o.Rounds)
		}
		return n
	}
	return 5*each + each*float64(o.Rounds)
}

// stormSpeed is how many events of a storm are over in a second, all its repeats told.
func (o *Options) stormSpeed() float64 {
	if o.Source == SourceKube { // which takes them one by one, and the floor's as well
		return 50
	}
	return 500
}

// over notes that a scenario is over.
func (c *schedule) over(expected float64) { c.done += expected }

// left is what is left of the budget for the next trial, when the others that are to come have
// as much.
func (c *schedule) left() time.Duration {
	n := max(c.trials, 1)
	c.trials--
	return max(time.Until(c.end)/time.Duration(n), time.Second)
}

// String tells the time left.
func (c *schedule) String() string {
	rest := time.Duration((c.expected - c.done) * float64(time.Second))
	if c.done > 0 {
		rest = time.Duration(float64(time.Since(c.begun)) * (c.expected - c.done) / c.done)
	}
	return fmt.Sprintf("about %s left", min(max(rest, 0), max(time.Until(c.end), 0)).Round(time.Second))
}

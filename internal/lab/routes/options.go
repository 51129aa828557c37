// Package routes measures what a change of a route does to one Envoy that holds many
// virtual hosts: moonsail lab routes.
//
// It serves them in several ways, to an Envoy each, sends requests at a fixed rate, and
// compares their latencies while one virtual host after the other changes with those while
// none does.
package routes

import (
	"fmt"
	"slices"
	"time"
)

// Options are what a run is told. Those of DefaultOptions and QuickOptions are good.
type Options struct {
	Envoy   string   // path of the binary
	Hosts   []int    // numbers of virtual hosts; each is measured
	Layouts []string // empty: all
	Workers int      // of Envoy
	Rate    int      // requests a second
	Conns   int
	Changes int           // a second, at most: the next waits for the ACK
	Phase   time.Duration // with and without changes, in turn
	Rounds  int
	Keys    time.Duration // for each expression of a scope's key and round; 0: not measured
}

// DefaultOptions take about eight minutes.
func DefaultOptions() Options {
	return Options{
		Hosts: []int{500, 5000}, Workers: 2, Rate: 1000, Conns: 32, Changes: 20,
		Phase: time.Second, Rounds: 14, Keys: 300 * time.Millisecond,
	}
}

// QuickOptions take less than two minutes.
func QuickOptions() Options {
	o := DefaultOptions()
	o.Hosts, o.Rounds, o.Phase, o.Keys = []int{5000}, 5, 700*time.Millisecond, 50*time.Millisecond
	return o
}

// expect is what a round takes, about.
func (o *Options) expect() time.Duration {
	layouts, _ := choose(o.Layouts) // Check has told
	return time.Duration(len(o.Hosts)*len(layouts))*(2*o.Phase+200*time.Millisecond) + time.Duration(len(keyFormats()))*o.Keys
}

// Layout is a way to serve virtual hosts.
type Layout struct {
	Name, About string
	make        func() layout
}

// Layouts are those that are compared.
func Layouts() []Layout {
	return []Layout{
		{"rds", "one route configuration with everything in it", func() layout { return &whole{} }},
		{"vhds", "one route configuration whose virtual hosts come by VHDS", func() layout { return apart{} }},
		{"srds", "a scope for each domain, with its route configuration in it", func() layout { return perHost{} }},
		{"buckets-16", "16 scopes by hash of the name (and 16 of the address), a route configuration each, virtual hosts by VHDS", func() layout { return bucketed{routeConfig, 4} }},
		{"buckets-32", "32 of them", func() layout { return bucketed{routeConfig, 5} }},
		{"buckets-64", "64 of them", func() layout { return bucketed{routeConfig, 6} }},
		{"buckets-128", "128 of them", func() layout { return bucketed{routeConfig, 7} }},
		{"buckets-256", "256 of them", func() layout { return bucketed{routeConfig, 8} }},
		{"buckets-512", "512 of them", func() layout { return bucketed{routeConfig, 9} }},
	}
}

// choose finds layouts by name; none named is all.
func choose(names []string) ([]Layout, error) {
	all := Layouts()
	if len(names) == 0 {
		return all, nil
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(l Layout) bool { return l.Name == n }) {
			return nil, fmt.Errorf("there is no layout %q", n)
		}
	}
	return slices.DeleteFunc(all, func(l Layout) bool { return !slices.Contains(names, l.Name) }), nil
}

// Check tells what is wrong with options.
func (o *Options) Check() error {
	if _, err := choose(o.Layouts); err != nil {
		return err
	}
	if len(o.Hosts) == 0 || slices.Min(o.Hosts) < 1 || slices.Max(o.Hosts) > 1<<16 {
		return fmt.Errorf("numbers of virtual hosts are 1 to %d, not %v", 1<<16, o.Hosts)
	}
	for name, n := range map[string]int{"workers": o.Workers, "rate": o.Rate, "connections": o.Conns, "changes": o.Changes, "rounds": o.Rounds, "phase": int(o.Phase)} {
		if n < 1 {
			return fmt.Errorf("%s must be above 0", name)
		}
	}
	return nil
}

// Package routes measures how a change of a route affects an Envoy with many virtual hosts: moonsail-lab routes.
//
// It serves them in several layouts, each to a separate Envoy, and sends requests at a fixed rate. It compares their
// latencies while virtual hosts change one after the other with those while none does.
package routes

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options configure a run. DefaultOptions and QuickOptions return valid ones.
type Options struct {
	Envoy string // path of the binary
	// Moonsail is the command line of moonsail, for layouts of the product.
	Moonsail []string
	Hosts    []int    // numbers of virtual hosts; each is measured
	Layouts  []string // empty: all
	Workers  int      // of Envoy
	Rate     int      // requests a second
	Conns    int
	Changes  int           // a second, at most: the next one waits for the ACK
	Phase    time.Duration // with and without changes, in turn
	Rounds   int
	Keys     time.Duration // for each expression of a scope's key and round; 0: not measured
}

// DefaultOptions returns options for a run of about 13 minutes.
func DefaultOptions() Options {
	return Options{
		Hosts: []int{500, 5000}, Workers: 2, Rate: 1000, Conns: 32, Changes: 20,
		Phase: time.Second, Rounds: 14, Keys: 300 * time.Millisecond,
	}
}

// QuickOptions returns options for a run of less than two minutes. It measures only some layouts, because each starts
// an Envoy: on a busy machine that would take all of the time.
func QuickOptions() Options {
	o := DefaultOptions()
	o.Layouts = []string{"rds", "vhds", "srds", split(), "product-auto"}
	o.Hosts, o.Rounds, o.Phase, o.Keys = []int{5000}, 5, 700*time.Millisecond, 50*time.Millisecond
	return o
}

// expect returns about how long a round takes.
func (o *Options) expect() time.Duration {
	layouts, _ := choose(o.Layouts) // Check has validated them
	return time.Duration(len(o.Hosts)*len(layouts))*(2*o.Phase+200*time.Millisecond) + time.Duration(len(keyFormats()))*o.Keys
}

// Layout is a way to serve virtual hosts.
type Layout struct {
	Name, About string
	make        func() layout // nil: the product makes it
	strategy    string        // --route-strategy of the product
}

// Layouts returns the layouts that are compared.
func Layouts() []Layout {
	return []Layout{
		{Name: "rds", About: "one route configuration that contains everything", make: func() layout { return &whole{} }},
		{Name: "vhds", About: "one route configuration whose virtual hosts come by VHDS", make: func() layout { return apart{} }},
		{Name: "srds", About: "a scope for each domain, with its route configuration in it", make: func() layout { return perHost{} }},
		{Name: "buckets-16", About: "16 scopes by hash of the name (and 16 of the address), a route configuration each, virtual hosts by VHDS", make: func() layout { return bucketed{routeConfig, 4} }},
		{Name: "buckets-32", About: "32 of them", make: func() layout { return bucketed{routeConfig, 5} }},
		{Name: "buckets-64", About: "64 of them", make: func() layout { return bucketed{routeConfig, 6} }},
		{Name: "buckets-128", About: "128 of them", make: func() layout { return bucketed{routeConfig, 7} }},
		{Name: "buckets-256", About: "256 of them", make: func() layout { return bucketed{routeConfig, 8} }},
		{Name: "buckets-512", About: "512 of them", make: func() layout { return bucketed{routeConfig, 9} }},
		{Name: "product-vhds", About: "moonsail serve --route-strategy=vhds on a mesh of files, with a cluster for each service", strategy: "vhds"},
		{Name: "product-auto", About: "the same with --route-strategy=auto", strategy: "auto"},
		{Name: "product-scoped", About: "the same with --route-strategy=scoped", strategy: "scoped"},
	}
}

// choose finds layouts by name. Without names it returns all.
func choose(names []string) ([]Layout, error) {
	all := Layouts()
	if len(names) == 0 {
		return all, nil
	}
	var known []string
	for i := range all {
		known = append(known, all[i].Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("unknown layout %q: use %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(l Layout) bool { return !slices.Contains(names, l.Name) }), nil
}

// Check validates the options.
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

package demo

import (
	"fmt"
	"slices"
)

// Namespace is the shop's.
const Namespace = "shop"

// Names in the shop that the demo's steps speak of.
const (
	frontend = "frontend"
	catalog  = "catalog"
	cart     = "cart"
	reviews  = "reviews"
	ratings  = "ratings"
	shopper  = "shopper" // the client; no service
)

// Services are the shop's services, in the order in which people read them.
var Services = []string{frontend, catalog, cart, reviews, ratings}

// calls are whom each application asks before it answers. reviews v1 asks nobody.
var calls = map[string][]string{
	frontend: {catalog, cart, reviews},
	cart:     {catalog},
	reviews:  {ratings},
}

// Workload is one instance: an application (none for the shopper, whose part the load
// generator plays) and its sidecar.
type Workload struct {
	Name    string // "reviews-v1-1"
	App     string // the service, or shopper
	Version string
	Number  int // the last part of its address
}

// Serves tells whether the workload has an application.
func (w Workload) Serves() bool { return w.App != shopper }

// Calls are the services that it asks for each of its answers.
func (w Workload) Calls() []string {
	if w.App == reviews && w.Version == "v1" {
		return nil
	}
	return calls[w.App]
}

// firstWorkloads are always there.
var firstWorkloads = []Workload{
	{Name: "shopper-1", App: shopper, Version: "v1"},
	{Name: "frontend-1", App: frontend, Version: "v1"},
	{Name: "catalog-1", App: catalog, Version: "v1"},
	{Name: "cart-1", App: cart, Version: "v1"},
	{Name: "reviews-v1-1", App: reviews, Version: "v1"},
	{Name: "reviews-v2-1", App: reviews, Version: "v2"},
	{Name: "reviews-v3-1", App: reviews, Version: "v3"},
	{Name: "ratings-1", App: ratings, Version: "v1"},
}

// moreWorkloads get second, third... instances where more workloads are asked for.
var moreWorkloads = []string{frontend, catalog, ratings, cart}

// How many workloads the demo can have: an address each, and one is added later.
const (
	MinWorkloads     = 8
	MaxWorkloads     = 100
	DefaultWorkloads = 12
)

// Shop lists n workloads.
func Shop(n int) []Workload {
	list := slices.Clone(firstWorkloads)
	for i := 0; len(list) < n; i++ {
		list = append(list, another(list, moreWorkloads[i%len(moreWorkloads)]))
	}
	for i := range list {
		list[i].Number = i + 1
	}
	return list
}

// another is one more instance of a service of one version.
func another(list []Workload, app string) Workload {
	n := 1
	for _, w := range list {
		if w.App == app {
			n++
		}
	}
	return Workload{Name: fmt.Sprintf("%s-%d", app, n), App: app, Version: "v1", Number: len(list) + 1}
}

// serving are the workloads of a service.
func serving(list []Workload, app string) []Workload {
	return slices.DeleteFunc(slices.Clone(list), func(w Workload) bool { return w.App != app })
}

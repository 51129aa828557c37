package demo

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// Namespace is the namespace of the shop.
const Namespace = "shop"

// Names of the shop's services.
const (
	frontend = "frontend"
	catalog  = "catalog"
	cart     = "cart"
	reviews  = "reviews"
	ratings  = "ratings"
	shopper  = "shopper" // the client, not a service
)

// Services are the shop's services, in the order of their calls.
var Services = []string{frontend, catalog, cart, reviews, ratings}

// calls lists the services that each application calls before it answers. reviews v1 calls none.
var calls = map[string][]string{
	frontend: {catalog, cart, reviews},
	cart:     {catalog},
	reviews:  {ratings},
}

// Workload is one instance of an application, with its sidecar. The shopper has no application: the load
// generator plays its part.
type Workload struct {
	Name    string // "reviews-v1-1"
	App     string // the service, or shopper
	Version string
	Number  int // the last part of its address
}

// Serves reports whether the workload has an application.
func (w Workload) Serves() bool { return w.App != shopper }

// Calls returns the services that the workload calls for each answer.
func (w Workload) Calls() []string {
	if w.App == reviews && w.Version == "v1" {
		return nil
	}
	return calls[w.App]
}

// firstWorkloads are part of every shop.
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

// moreWorkloads get further instances, in turn, in a larger shop.
var moreWorkloads = []string{frontend, catalog, ratings, cart}

// Numbers of workloads. Each has an address, and the demo adds one later.
const (
	MinWorkloads     = 8
	MaxWorkloads     = 100
	DefaultWorkloads = 12
)

// Shop returns n workloads.
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

// another returns one more instance of a service with one version.
func another(list []Workload, app string) Workload {
	n := 1
	for _, w := range list {
		if w.App == app {
			n++
		}
	}
	return Workload{Name: fmt.Sprintf("%s-%d", app, n), App: app, Version: "v1", Number: len(list) + 1}
}

// serving returns the workloads of a service.
func serving(list []Workload, app string) []Workload {
	return slices.DeleteFunc(slices.Clone(list), func(w Workload) bool { return w.App != app })
}

//go:embed manifests/*.yaml
var manifestFiles embed.FS

var manifests = template.Must(template.ParseFS(manifestFiles, "manifests/*.yaml"))

// manifest is one file of the shop's configuration.
type manifest struct {
	Path string // in the configuration directory
	YAML string
}

// render executes a template. A failure is a mistake in the embedded templates,
// which tests find.
func render(path, name string, data any) manifest {
	var b strings.Builder
	if err := manifests.ExecuteTemplate(&b, name+".yaml", data); err != nil {
		panic(fmt.Sprintf("demo: template %s: %v", name, err))
	}
	return manifest{path, b.String()}
}

func serviceManifest(p Addresses, service string) manifest {
	return render("services/"+service+".yaml", "service", map[string]any{"Service": service, "Addresses": p, "Namespace": Namespace})
}

// member is an endpoint of an EndpointSlice.
type member struct {
	Pod, IP string
	Leaving bool // terminating: no new requests
}

// endpointsManifest lists the endpoints of a service. leaving names the Pods that are about to end.
func endpointsManifest(p Addresses, service string, list []Workload, leaving ...string) manifest {
	var members []member
	for _, w := range serving(list, service) {
		m := member{Pod: w.Name, IP: p.IP(w)}
		for _, l := range leaving {
			m.Leaving = m.Leaving || l == w.Name
		}
		members = append(members, m)
	}
	return render(endpointsPath(service), "endpoints",
		map[string]any{"Service": service, "Addresses": p, "Members": members, "Namespace": Namespace})
}

func endpointsPath(service string) string { return "endpoints/" + service + ".yaml" }

func workloadManifest(p Addresses, w Workload) manifest {
	return render(workloadPath(w), "workload", map[string]any{"W": w, "IP": p.IP(w), "Addresses": p, "Namespace": Namespace})
}

func workloadPath(w Workload) string { return "workloads/" + w.Name + ".yaml" }

// canaryManifest routes reviews: to v1 and v2 by weight, testers to v3.
func canaryManifest(v1, v2 int) manifest {
	return render("routing/reviews.yaml", "canary", map[string]any{"V1": v1, "V2": v2, "Namespace": Namespace})
}

func subsetsManifest() manifest {
	return render("routing/reviews-subsets.yaml", "subsets", map[string]any{"Namespace": Namespace})
}

// faultManifest makes ratings fail for marked requests.
func faultManifest() manifest {
	return render("routing/ratings.yaml", "faults", map[string]any{
		"Namespace": Namespace, "Marker": markHeader,
		"Status": abortStatus, "Delay": faultDelay, "Timeout": routeTimeout,
	})
}

// brokenManifest is canaryManifest with common mistakes.
func brokenManifest() manifest {
	return render("routing/reviews.yaml", "broken", map[string]any{"Namespace": Namespace})
}

// initialManifests describe the shop at the start.
func initialManifests(p Addresses, list []Workload) []manifest {
	out := []manifest{render("namespace.yaml", "namespace", map[string]any{"Namespace": Namespace})}
	for _, s := range Services {
		out = append(out, serviceManifest(p, s), endpointsManifest(p, s, list))
	}
	for _, w := range list {
		out = append(out, workloadManifest(p, w))
	}
	return append(out, subsetsManifest(), canaryManifest(100, 0))
}

// write writes a manifest to the configuration directory atomically: readers see the old
// content or the new one.
func write(dir string, m manifest) error {
	path := filepath.Join(dir, m.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temporary, []byte(m.YAML), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

func remove(dir, path string) error { return os.Remove(filepath.Join(dir, path)) }

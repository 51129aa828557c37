package demo

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed manifests/*.yaml
var manifestFiles embed.FS

var manifests = template.Must(template.ParseFS(manifestFiles, "manifests/*.yaml"))

// manifest is one file of the shop's configuration.
type manifest struct {
	Path string // in the configuration directory
	YAML string
}

// render fills in a template. The templates are our own: a failure is a mistake in them,
// which the tests would show.
func render(path, name string, data any) manifest {
	var b strings.Builder
	if err := manifests.ExecuteTemplate(&b, name+".yaml", data); err != nil {
		panic(fmt.Sprintf("demo: template %s: %v", name, err))
	}
	return manifest{path, b.String()}
}

func serviceManifest(p Place, service string) manifest {
	return render("services/"+service+".yaml", "service", map[string]any{"Service": service, "Place": p, "Namespace": Namespace})
}

// member is an endpoint of a slice.
type member struct {
	Pod, IP string
	Leaving bool // no new requests, please
}

// endpointsManifest lists a service's endpoints; leaving names the pods that are about to end.
func endpointsManifest(p Place, service string, list []Workload, leaving ...string) manifest {
	var members []member
	for _, w := range serving(list, service) {
		m := member{Pod: w.Name, IP: p.IP(w)}
		for _, l := range leaving {
			m.Leaving = m.Leaving || l == w.Name
		}
		members = append(members, m)
	}
	return render(endpointsPath(service), "endpoints",
		map[string]any{"Service": service, "Place": p, "Members": members, "Namespace": Namespace})
}

func endpointsPath(service string) string { return "endpoints/" + service + ".yaml" }

func workloadManifest(p Place, w Workload) manifest {
	return render(workloadPath(w), "workload", map[string]any{"W": w, "IP": p.IP(w), "Place": p, "Namespace": Namespace})
}

func workloadPath(w Workload) string { return "workloads/" + w.Name + ".yaml" }

// canaryManifest routes reviews: v1 and v2 by weight, testers to v3.
func canaryManifest(v1, v2 int) manifest {
	return render("routing/reviews.yaml", "canary", map[string]any{"V1": v1, "V2": v2, "Namespace": Namespace})
}

func subsetsManifest() manifest {
	return render("routing/reviews-subsets.yaml", "subsets", map[string]any{"Namespace": Namespace})
}

// faultManifest makes ratings fail, but only for marked requests.
func faultManifest() manifest {
	return render("routing/ratings.yaml", "faults", map[string]any{
		"Namespace": Namespace, "Marker": markHeader,
		"Status": abortStatus, "Delay": faultDelay, "Timeout": routeTimeout,
	})
}

// brokenManifest is canaryManifest with the mistakes that people make.
func brokenManifest() manifest {
	return render("routing/reviews.yaml", "broken", map[string]any{"Namespace": Namespace})
}

// initialManifests are the shop as it opens.
func initialManifests(p Place, list []Workload) []manifest {
	out := []manifest{render("namespace.yaml", "namespace", map[string]any{"Namespace": Namespace})}
	for _, s := range Services {
		out = append(out, serviceManifest(p, s), endpointsManifest(p, s, list))
	}
	for _, w := range list {
		out = append(out, workloadManifest(p, w))
	}
	return append(out, subsetsManifest(), canaryManifest(100, 0))
}

// write puts a manifest into the configuration directory at once: readers see the old
// content or the new.
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

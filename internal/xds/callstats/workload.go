package callstats

import (
	"cmp"
	"strings"
)

// Workload is one end of a call in labels of metrics. Empty fields are unknown.
type Workload struct {
	Name, Namespace   string
	Service, Revision string // canonical, see CanonicalService and CanonicalRevision
	Cluster           string // the Kubernetes cluster
	App, Version      string // the labels app and version
}

// Text encodes a workload as in Istio's metadata of endpoints: "name;namespace;service;revision;cluster". The labels app
// and version follow if they differ from the canonical service and revision.
func (w *Workload) Text() string { return w.text(w.Revision) }

// EndpointText is Text with an empty revision instead of "latest", as in Istio's metadata of endpoints.
func (w *Workload) EndpointText() string {
	if w.Revision == Latest {
		return w.text("")
	}
	return w.Text()
}

// Latest is the canonical revision of workloads without one.
const Latest = "latest"

func (w *Workload) text(revision string) string {
	text := w.Name + ";" + w.Namespace + ";" + w.Service + ";" + revision + ";" + w.Cluster
	if w.App != w.Service || w.Version != w.Revision {
		text += ";" + w.App + ";" + w.Version
	}
	return text
}

// ParseWorkload parses what Text returns. An invalid text is an unknown workload.
func ParseWorkload(text string) Workload {
	p := strings.Split(text, ";")
	if len(p) != 5 && len(p) != 7 {
		return Workload{}
	}
	w := Workload{Name: p[0], Namespace: p[1], Service: p[2], Revision: p[3], Cluster: p[4], App: p[2], Version: p[3]}
	if len(p) == 7 {
		w.App, w.Version = p[5], p[6]
	}
	return w
}

// CanonicalService returns the name of a workload's service in telemetry, as in Istio. workload is the name of the
// workload.
func CanonicalService(labels map[string]string, workload string) string {
	return cmp.Or(labels["service.istio.io/canonical-name"], labels["app.kubernetes.io/name"], labels["app"], workload)
}

// CanonicalRevision returns the version of a workload in telemetry, as in Istio; empty: unknown.
func CanonicalRevision(labels map[string]string) string {
	return cmp.Or(labels["service.istio.io/canonical-revision"], labels["app.kubernetes.io/version"], labels["version"])
}

// ServiceText encodes a service for the metadata of its clusters: its host, followed by name and namespace unless they
// begin the host, as they do in Kubernetes.
func ServiceText(host, name, namespace string) string {
	if host != "" && strings.HasPrefix(host, name+"."+namespace+".svc.") {
		return host
	}
	return host + ";" + cmp.Or(name, host) + ";" + namespace
}

// ParseService parses what ServiceText returns.
func ParseService(text string) (host, name, namespace string) {
	p := strings.Split(text, ";")
	if len(p) == 3 {
		return p[0], p[1], p[2]
	}
	parts := strings.SplitN(text, ".", 4)
	if len(parts) == 4 && parts[2] == "svc" {
		return text, parts[0], parts[1]
	}
	return text, text, ""
}

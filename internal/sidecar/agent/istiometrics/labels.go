package istiometrics

import (
	"cmp"
	"slices"
	"strings"
)

// label is one label of a metric. As in Prometheus's text format, the value has escaped quotes, backslashes and line
// breaks.
type label struct{ name, value string }

// parseLabels decodes `a="b",c="d"`.
func parseLabels(text string) (out []label, ok bool) {
	for text != "" {
		name, rest, found := strings.Cut(text, `="`)
		end := endOfValue(rest)
		if !found || end < 0 {
			return nil, false
		}
		out = append(out, label{name, rest[:end]})
		text = strings.TrimPrefix(rest[end+1:], ",")
	}
	return out, true
}

// endOfValue returns the index of the quote that ends a value; -1: none.
func endOfValue(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// Labels in which Envoy, as configured by package translate, counts the variable parts of a call.
const (
	callLabel    = "__call"
	removedLabel = "__removed"
	callParts    = 9
)

const unknown = "unknown"

// Workload is one end of a call in labels of metrics. Empty fields are unknown.
type Workload struct {
	Name, Namespace, Service, Revision, Cluster, App, Version string
}

// Text encodes a workload for other sidecars, as in Istio's metadata of endpoints. The labels app and version follow if
// they differ from the canonical service and revision.
func (w *Workload) Text() string {
	text := w.Name + ";" + w.Namespace + ";" + w.Service + ";" + w.Revision + ";" + w.Cluster
	if w.App != w.Service || w.Version != w.Revision {
		text += ";" + w.App + ";" + w.Version
	}
	return text
}

// parseWorkload decodes Text. An invalid text is an unknown workload.
func parseWorkload(text string) Workload {
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

// call is the decoded label of a call.
type call struct {
	reporter, protocol, code, grpc, flags, service string
	principal, peerPrincipal, peer                 string
}

func parseCall(text string) (call, bool) {
	p := strings.SplitN(text, "|", callParts)
	if len(p) != callParts {
		return call{}, false
	}
	for i := range p {
		if p[i] == "-" && i != 4 { // Envoy's text for an empty value, but "no flags" for flags
			p[i] = ""
		}
	}
	return call{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]}, true
}

// labels returns Istio's labels for Envoy's. A label beside the label of the call overrides the standard label of its
// name.
func (w *Workload) labels(list []label) string {
	var standard, others []label
	removed := map[string]bool{}
	for _, l := range list {
		switch l.name {
		case callLabel:
			c, ok := parseCall(l.value)
			if !ok {
				return textOf(list)
			}
			standard = w.standard(&c)
		case removedLabel:
			for name := range strings.SplitSeq(l.value, ",") {
				removed[name] = true
			}
		default:
			others = append(others, l)
			removed[l.name] = true
		}
	}
	standard = slices.DeleteFunc(standard, func(l label) bool { return removed[l.name] })
	return textOf(append(standard, others...))
}

func textOf(list []label) string {
	var b strings.Builder
	for i, l := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.name + `="` + l.value + `"`)
	}
	return b.String()
}

// standard returns Istio's labels in Istio's order.
func (w *Workload) standard(c *call) []label {
	source, destination := *w, parseWorkload(c.peer)
	from, to, policy := c.principal, c.peerPrincipal, unknown
	if c.reporter == "destination" {
		source, destination = w.caller(c), *w
		from, to, policy = c.peerPrincipal, c.principal, "none"
		if c.peerPrincipal != "" {
			policy = "mutual_tls"
		}
	}
	host, name, namespace := serviceOf(c.service)
	out := append([]label{{"reporter", c.reporter}}, source.labelsAs("source", from)...)
	out = append(out, destination.labelsAs("destination", to)...)
	out = append(out,
		label{"destination_service", cmp.Or(host, unknown)},
		label{"destination_service_name", cmp.Or(name, unknown)},
		label{"destination_service_namespace", cmp.Or(namespace, unknown)},
		label{"request_protocol", c.protocol})
	if c.protocol != "tcp" {
		out = append(out, label{"response_code", c.code}, label{"grpc_response_status", c.grpc})
	}
	return append(out, label{"response_flags", c.flags}, label{"connection_security_policy", policy})
}

func (w *Workload) labelsAs(side, principal string) []label {
	or := func(name, value string) label { return label{side + name, cmp.Or(value, unknown)} }
	revision := w.Revision
	if w.Name != "" {
		revision = cmp.Or(revision, "latest")
	}
	return []label{
		or("_workload", w.Name), or("_workload_namespace", w.Namespace), or("_principal", principal),
		or("_app", w.App), or("_version", w.Version), or("_cluster", w.Cluster),
		or("_canonical_service", w.Service), or("_canonical_revision", revision),
	}
}

// caller returns the caller that a server got, if the certificate has the same namespace. Without a certificate the
// caller is unknown.
func (w *Workload) caller(c *call) Workload {
	namespace := namespaceOf(c.peerPrincipal)
	told := parseWorkload(c.peer)
	if namespace == "" || told.Namespace != namespace {
		return Workload{Namespace: namespace}
	}
	return told
}

// namespaceOf returns the namespace in "spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT".
func namespaceOf(principal string) string {
	id, ok := strings.CutPrefix(principal, "spiffe://")
	p := strings.Split(id, "/")
	if !ok || len(p) != 5 || p[1] != "ns" || p[3] != "sa" {
		return ""
	}
	return p[2]
}

// serviceOf decodes a cluster's service: "HOST;NAME;NAMESPACE", or a host of Kubernetes, which contains all three.
func serviceOf(text string) (host, name, namespace string) {
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

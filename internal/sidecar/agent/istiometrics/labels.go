package istiometrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/callstats"
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

const unknown = "unknown"

// istioLabels returns Istio's labels for Envoy's of a workload. A label beside the label of the call overrides the standard label of its
// name.
func istioLabels(own *callstats.Workload, list []label) string {
	var standard, others []label
	removed := map[string]bool{}
	for _, l := range list {
		switch l.name {
		case callstats.CallTag:
			c, ok := callstats.ParseCall(l.value)
			if !ok {
				return textOf(list)
			}
			standard = standardLabels(own, &c)
		case callstats.RemovedTag:
			for name := range strings.SplitSeq(l.value, ",") {
				removed[name] = true
			}
		default:
			others = append(others, label{l.name, cmp.Or(l.value, unknown)}) // as Istio's filter for what a call does not have
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

// standardLabels returns Istio's labels in Istio's order.
func standardLabels(own *callstats.Workload, c *callstats.Call) []label {
	source, destination := *own, callstats.ParseWorkload(c.Peer)
	from, to, policy := c.Principal, c.PeerPrincipal, unknown
	if c.Reporter == callstats.Destination {
		source, destination = caller(c), *own
		from, to, policy = c.PeerPrincipal, c.Principal, "none"
		if c.PeerPrincipal != "" {
			policy = "mutual_tls"
		}
	}
	host, name, namespace := callstats.ParseService(c.Service)
	out := append([]label{{"reporter", c.Reporter}}, labelsOfEnd(callstats.Source, &source, from)...)
	out = append(out, labelsOfEnd(callstats.Destination, &destination, to)...)
	out = append(out,
		label{"destination_service", cmp.Or(host, unknown)},
		label{"destination_service_name", cmp.Or(name, unknown)},
		label{"destination_service_namespace", cmp.Or(namespace, unknown)},
		label{"request_protocol", c.Protocol})
	if c.Protocol != "tcp" {
		out = append(out, label{"response_code", c.Code}, label{"grpc_response_status", c.GRPC})
	}
	return append(out, label{"response_flags", c.Flags}, label{"connection_security_policy", policy})
}

// labelsOfEnd returns the labels of one end of a call. side begins their names.
func labelsOfEnd(side string, w *callstats.Workload, principal string) []label {
	or := func(name, value string) label { return label{side + name, cmp.Or(value, unknown)} }
	revision := w.Revision
	if w.Name != "" {
		revision = cmp.Or(revision, callstats.Latest)
	}
	return []label{
		or("_workload", w.Name), or("_workload_namespace", w.Namespace), or("_principal", principal),
		or("_app", w.App), or("_version", w.Version), or("_cluster", w.Cluster),
		or("_canonical_service", w.Service), or("_canonical_revision", revision),
	}
}

// caller returns the caller that a server received, if the certificate has the same namespace. Without a certificate the
// caller is unknown.
func caller(c *callstats.Call) callstats.Workload {
	id, _ := model.ParseIdentity(c.PeerPrincipal) // zero without a certificate of the mesh
	peer := callstats.ParseWorkload(c.Peer)
	if id.Namespace == "" || peer.Namespace != id.Namespace {
		return callstats.Workload{Namespace: id.Namespace}
	}
	return peer
}

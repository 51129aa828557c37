package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// everywhere are the namespaces of every cluster.
var everywhere = []string{"default", "kube-node-lease", "kube-public", "kube-system"}

// noNamespace reports whether a namespace that an object names does not exist. Files do not list all, even if they have some
// Namespaces: there, it does not exist if nothing is in it and its name is a misspelling of one that has objects.
func (c *checker) noNamespace(ns string) bool {
	switch {
	case c.security.namespaces[ns] || ns == c.security.root || slices.Contains(everywhere, ns):
		return false
	case c.onlyFiles || !c.security.listed:
		return c.misspeltNamespace(ns) != ""
	}
	return true
}

// namespaceHint is what to do about a namespace that does not exist.
func (c *checker) namespaceHint(ns string) string {
	if near := c.misspeltNamespace(ns); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	if near := spelling.Nearest(ns, slices.Collect(maps.Keys(c.security.namespaces))); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return "correct the name"
}

// misspeltNamespace returns the namespace with objects whose name was probably meant: letters are swapped, missing or doubled.
// Names with other letters or digits, such as team-a and team-b, are different namespaces.
func (c *checker) misspeltNamespace(ns string) string {
	const least = 4 // letters: short names are similar by chance
	if len(ns) < least-1 {
		return ""
	}
	for _, other := range slices.Sorted(maps.Keys(c.security.namespaces)) {
		if len(other) >= least && other != ns && oneSlip(ns, other) {
			return other
		}
	}
	return ""
}

// oneSlip reports whether a text becomes another one by swapping two neighbours, or by adding or removing a letter inside.
func oneSlip(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		return i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	case 1:
		return i < len(a) && a[i:] == b[i+1:] && (b[i] < '0' || b[i] > '9') && b[i] != '-'
	}
	return false
}

// misspelt reports objects of files in a namespace that probably is a misspelling: it has one object, no Namespace, and its name
// is that of a larger one with a slip.
func (c *checker) misspelt(objects []model.Object) {
	if !c.onlyFiles {
		return
	}
	sizes, declared := map[string]int{}, map[string]bool{}
	for _, o := range objects {
		sizes[o.Metadata().Namespace]++
		if n, ok := o.(*model.Namespace); ok {
			declared[n.Name] = true
		}
	}
	for ns, list := range c.workloads {
		sizes[ns] += len(list)
	}
	for _, o := range objects {
		ns := o.Metadata().Namespace
		if ns == "" || sizes[ns] > 1 || declared[ns] {
			continue
		}
		if near := c.misspeltNamespace(ns); near != "" && (sizes[near] > 1 || declared[near]) {
			c.report(code.NamespaceNotFound, problem.SeverityWarning, o.Metadata().Key, "metadata.namespace", "no other object is in namespace %s; did you mean %s?", ns, near)
		}
	}
}

// grant reports kinds of a ReferenceGrant that are misspelt: it then allows nothing.
func (c *checker) grant(g *model.ReferenceGrant) {
	for i, from := range g.From {
		c.grantKind(g, fmt.Sprintf("spec.from[%d].kind", i), from.Kind, []string{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "Gateway", "ListenerSet"})
	}
	for i, to := range g.To {
		c.grantKind(g, fmt.Sprintf("spec.to[%d].kind", i), to.Kind, []string{"Service", "Secret", "ConfigMap"})
	}
}

func (c *checker) grantKind(g *model.ReferenceGrant, field, kind string, known []string) {
	if slices.Contains(known, kind) {
		return
	}
	if near := spelling.Nearest(kind, known); near != "" {
		c.warnf(code.UnknownValue, g, field, "kind %s: unknown, so this allows nothing: did you mean %s?", kind, near)
	}
}

// wildcardNamespace reports an entry of a Sidecar for all services of a misspelt namespace.
func (c *checker) wildcardNamespace(s *model.Sidecar, field string, h model.HostSelector) {
	if strings.ContainsAny(h.Namespace, "*.~") {
		return
	}
	if near := c.misspeltNamespace(h.Namespace); near != "" {
		c.warnf(code.NamespaceNotFound, s, field, "namespace %s: not found, so this selects nothing: did you mean %s?", h.Namespace, near)
	}
}

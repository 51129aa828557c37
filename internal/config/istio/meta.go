package istio

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/model"
)

// conv converts and checks one object.
type conv struct {
	report
	meta   model.Meta
	domain string
}

func (d Decoder) start(kind model.Kind, o *metav1.ObjectMeta) *conv {
	c := &conv{domain: d.domain(), meta: model.Meta{
		Key:             model.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name},
		Labels:          o.Labels,
		Annotations:     o.Annotations,
		ResourceVersion: o.ResourceVersion,
		Created:         o.CreationTimestamp.Time,
		Origin:          "kubernetes",
	}}
	c.object = c.meta.Key
	c.objectMeta(o)
	return c
}

// objectMeta checks what the API server would have checked.
func (c *conv) objectMeta(o *metav1.ObjectMeta) {
	at := path("metadata")
	if o.Name == "" {
		c.errorf(at.f("name"), "is missing; every object needs a name")
	} else if msgs := validation.IsDNS1123Subdomain(o.Name); len(msgs) > 0 {
		c.errorf(at.f("name"), "%q is not a valid name: use lower-case letters, digits, '-' and '.'", o.Name)
	}
	if o.Namespace != "" && len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		c.errorf(at.f("namespace"), "%q is not a valid namespace: use lower-case letters, digits and '-'", o.Namespace)
	}
	c.labels(at.f("labels"), o.Labels)
}

// labels checks label names and values.
func (c *conv) labels(at path, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if len(validation.IsQualifiedName(k)) > 0 {
			c.errorf(at.k(k), "%q is not a valid label name: use letters, digits, '-', '_', '.' and at most one prefix/", k)
		}
		if v := labels[k]; len(validation.IsValidLabelValue(v)) > 0 {
			c.errorf(at.k(k), "%q is not a valid label value: use at most 63 letters, digits, '-', '_' and '.'", v)
		}
	}
}

// selector checks the labels of a workload selector; field is what they are called.
func (c *conv) selector(at path, field string, labels map[string]string) map[string]string {
	if len(labels) == 0 {
		c.warnf(at, "has no labels, so it selects every workload of namespace %s; name labels, or leave the selector out", c.meta.Namespace)
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k == "" {
			c.errorf(at.f(field), "a label without a name cannot be selected; give it a name")
		}
		if strings.Contains(k, "*") || strings.Contains(labels[k], "*") {
			c.errorf(at.f(field).k(k), "wildcards cannot be used in selectors; write out %s=%s", k, labels[k])
		}
	}
	return labels
}

// Values of exportTo.
const (
	exportAll  = "*"
	exportHere = "."
	exportNone = "~"
)

// exportTo resolves a list of namespaces. nobody tells whether "~" may be used.
func (c *conv) exportTo(at path, list []string, nobody bool) model.Visibility {
	seen := map[string]bool{}
	for i, e := range list {
		ns := e
		if e == exportHere {
			ns = c.meta.Namespace
		}
		switch {
		case seen[ns] && e != ns:
			c.errorf(at.i(i), "%q and %q are the same namespace; keep one of them", e, ns)
		case seen[ns]:
			c.errorf(at.i(i), "%q is listed twice; remove one", e)
		case e == exportNone && !nobody:
			c.errorf(at.i(i), "\"~\" is for ServiceEntry only; use \".\" for this namespace")
		case e != exportAll && e != exportNone && !isLabel(ns):
			c.errorf(at.i(i), "%q is not a namespace; use \"*\", \".\" or the name of a namespace", e)
		}
		seen[ns] = true
	}
	if len(seen) > 1 && (seen[exportAll] || seen[exportNone]) {
		c.errorf(at, "\"*\" and \"~\" cannot be combined with other entries; keep only one entry")
	}
	if len(list) == 0 || seen[exportAll] {
		return model.Visibility{Public: seen[exportAll]}
	}
	delete(seen, exportNone)
	v := model.Visibility{Private: true}
	if len(seen) > 0 {
		v.Namespaces = slices.Sorted(maps.Keys(seen))
	}
	return v
}

// host is a full host name for one written in this object. IP addresses stay.
func (c *conv) host(name string) model.Host {
	if model.IsIP(name) {
		return model.Host(name)
	}
	return model.ResolveHost(strings.TrimSuffix(name, "."), c.meta.Namespace, c.domain)
}

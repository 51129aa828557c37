package convert

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

var labelOperators = []string{
	string(model.LabelIn), string(model.LabelNotIn), string(model.LabelExists), string(model.LabelDoesNotExist),
}

// LabelExpression checks one of a label selector's matchExpressions.
func (c *Converter) LabelExpression(at problem.Path, e *model.LabelExpression) {
	if e.Key == "" {
		c.Errorf(code.MissingField, at.Field("key"), "is missing; name a label")
	}
	needsValues := e.Operator == model.LabelIn || e.Operator == model.LabelNotIn
	switch {
	case !slices.Contains(labelOperators, string(e.Operator)):
		c.Errorf(code.UnknownValue, at.Field("operator"), "%q is not one of %s", e.Operator, strings.Join(labelOperators, ", "))
	case needsValues && len(e.Values) == 0:
		c.Errorf(code.MissingField, at.Field("values"), "is missing; %s compares with at least one value", e.Operator)
	case !needsValues && len(e.Values) > 0:
		c.Errorf(code.NotAllowedHere, at.Field("values"), "has no meaning for %s; remove it", e.Operator)
	}
}

// objectMeta checks what the API server would have checked.
func (c *Converter) objectMeta(o *metav1.ObjectMeta) {
	at := problem.Path("metadata")
	if o.Name == "" {
		c.Errorf(code.MissingField, at.Field("name"), "is missing; every object needs a name")
	} else if msgs := validation.IsDNS1123Subdomain(o.Name); len(msgs) > 0 {
		c.Errorf(code.InvalidName, at.Field("name"), "%q is not a valid name: use lower-case letters, digits, '-' and '.'", o.Name)
	}
	if o.Namespace != "" && len(validation.IsDNS1123Label(o.Namespace)) > 0 {
		c.Errorf(code.InvalidName, at.Field("namespace"), "%q is not a valid namespace: use lower-case letters, digits and '-'", o.Namespace)
	}
	c.Labels(at.Field("labels"), o.Labels)
	c.unread(o)
}

// Labels checks label names and values.
func (c *Converter) Labels(at problem.Path, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if len(validation.IsQualifiedName(k)) > 0 {
			c.Errorf(code.InvalidName, at.Key(k), "%q is not a valid label name: use letters, digits, '-', '_', '.' and at most one prefix/", k)
		}
		if v := labels[k]; len(validation.IsValidLabelValue(v)) > 0 {
			c.Errorf(code.InvalidName, at.Key(k), "%q is not a valid label value: use at most 63 letters, digits, '-', '_' and '.'", v)
		}
	}
}

// Selector checks the labels of a workload selector; field is what they are called.
func (c *Converter) Selector(at problem.Path, field string, labels map[string]string) map[string]string {
	if len(labels) == 0 {
		c.Warnf(code.MissingField, at, "has no labels, so it selects every workload of namespace %s; name labels, or leave the selector out", c.Meta.Namespace)
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k == "" {
			c.Errorf(code.MissingField, at.Field(field), "a label without a name cannot be selected; add the name")
		}
		if strings.Contains(k, "*") || strings.Contains(labels[k], "*") {
			c.Errorf(code.NotAllowedHere, at.Field(field).Key(k), "wildcards cannot be used in selectors; write out %s=%s", k, labels[k])
		}
	}
	return labels
}

// Values of exportTo.
const (
	ExportAll  = "*"
	ExportHere = "."
	ExportNone = "~"
)

// ExportTo resolves a list of namespaces. The parameter none allows "~", which exports to no namespace.
func (c *Converter) ExportTo(at problem.Path, list []string, none bool) model.Visibility {
	seen := map[string]bool{}
	for i, e := range list {
		ns := e
		if e == ExportHere {
			ns = c.Meta.Namespace
		}
		switch {
		case seen[ns] && e != ns:
			c.Errorf(code.ListedTwice, at.Index(i), "%q and %q are the same namespace; keep one of them", e, ns)
		case seen[ns]:
			c.Errorf(code.ListedTwice, at.Index(i), "%q is listed twice; remove one", e)
		case e == ExportNone && !none:
			c.Errorf(code.NotAllowedHere, at.Index(i), "\"~\" is for ServiceEntry only; use \".\" for this namespace")
		case e != ExportAll && e != ExportNone && !IsLabel(ns):
			c.Errorf(code.InvalidName, at.Index(i), "%q is not a namespace; use \"*\", \".\" or the name of a namespace", e)
		}
		seen[ns] = true
	}
	if len(seen) > 1 && (seen[ExportAll] || seen[ExportNone]) {
		c.Errorf(code.ExclusiveFields, at, "\"*\" and \"~\" cannot be combined with other entries; keep only one entry")
	}
	if len(list) == 0 || seen[ExportAll] {
		return model.Visibility{Public: seen[ExportAll]}
	}
	delete(seen, ExportNone)
	v := model.Visibility{Private: true}
	if len(seen) > 0 {
		v.Namespaces = slices.Sorted(maps.Keys(seen))
	}
	return v
}

package istio

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// Health checks of WorkloadEntries: the agent writes the condition.
const (
	annotationHealthChecks = "proxy.istio.io/health-checks-enabled"
	conditionHealthy       = "Healthy"
)

// WorkloadEntry decodes a WorkloadEntry. Labels of the object win over spec.labels.
func WorkloadEntry(in convert.Cluster, o *networkingv1.WorkloadEntry) (*model.Workload, problem.List) {
	c := entryConv{convert.Start(in, model.KindWorkloadEntry, &o.ObjectMeta)}
	e := c.endpoint("spec", &o.Spec, endpointRules{fqdn: true, labels: o.Labels})
	w := &model.Workload{
		Meta:           c.Meta,
		Addresses:      []string{e.Address},
		ServiceAccount: e.ServiceAccount,
		Locality:       e.Locality,
		Network:        e.Network,
		Weight:         e.Weight,
		NamedPorts:     e.Ports,
		Ready:          entryReady(o),
		Terminating:    o.DeletionTimestamp != nil,
	}
	w.Labels = e.Labels
	if e.Address == "" {
		w.Addresses = nil
	}
	return w, c.Problems
}

func mergeLabels(under, over map[string]string) map[string]string {
	switch {
	case len(under) == 0:
		return over
	case len(over) == 0:
		return under
	}
	out := maps.Clone(under)
	maps.Copy(out, over)
	return out
}

// entryReady reports the result of health checks. Like Istio it accepts the annotation in all forms of a Go boolean. An entry
// without a result yet is not ready.
func entryReady(o *networkingv1.WorkloadEntry) bool {
	if on, err := strconv.ParseBool(o.Annotations[annotationHealthChecks]); err != nil || !on {
		return true
	}
	for _, cond := range o.Status.Conditions {
		if cond.GetType() == conditionHealthy {
			return cond.GetStatus() == "True"
		}
	}
	return false
}

// endpointRules are the rules for an endpoint, by the kind of object that it is part of.
type endpointRules struct {
	fqdn    bool              // the address may be a DNS name
	noUnix  bool              // it may not be a Unix socket
	service []string          // names of the service's ports; nil: not known
	labels  map[string]string // of the object, which win over those of the endpoint
}

// endpoint converts a WorkloadEntry, alone or inside of a ServiceEntry.
func (c entryConv) endpoint(at problem.Path, we *networking.WorkloadEntry, rules endpointRules) model.Endpoint {
	c.Labels(at.Field("labels"), we.Labels)
	c.endpointPorts(at, we, rules)
	if we.Network != "" && we.Address != "" {
		c.Warnf(code.NotSupported, at.Field("network"), "has no effect: the mesh has one network, so the endpoint is called at its address; remove it")
	}
	labels := mergeLabels(we.Labels, rules.labels)
	return model.Endpoint{
		Address:        c.endpointAddress(at, we, rules),
		Ports:          we.Ports,
		Labels:         labels,
		Locality:       c.endpointLocality(at, we, labels),
		Weight:         we.Weight,
		Sidecar:        model.EntrySpeaksMTLS(labels, we.ServiceAccount),
		Network:        cmp.Or(we.Network, labels[model.LabelNetwork]),
		Workload:       c.Meta.Name,
		Namespace:      c.Meta.Namespace,
		ServiceAccount: we.ServiceAccount,
	}
}

func (c entryConv) endpointAddress(at problem.Path, we *networking.WorkloadEntry, rules endpointRules) string {
	addr, field := we.Address, at.Field("address")
	switch {
	case addr == "" && we.Network == "":
		c.Errorf(code.MissingField, field, "is missing; set an IP address%s", orName(rules.fqdn))
	case addr == "":
		c.Warnf(code.NotSupported, field, "is missing, so the endpoint is not called: gateways of other networks are not supported; set an IP address%s", orName(rules.fqdn))
	case strings.HasPrefix(addr, convert.UnixPrefix) && !rules.noUnix:
		if len(we.Ports) > 0 {
			c.Errorf(code.NotAllowedHere, at.Field("ports"), "a Unix socket has no ports; remove them")
		}
		if rules.service != nil && len(rules.service) != 1 {
			c.Errorf(code.NotAllowedHere, field, "a Unix socket serves one port, but the service has %d; use one entry for each", len(rules.service))
		}
		return c.CheckUnix(field, addr)
	case model.IsIP(addr):
	case !rules.fqdn:
		c.Errorf(code.InvalidFormat, field, "%q is not an IP address; set one, or use resolution DNS", addr)
	case convert.HostError(addr, false) != "":
		c.Errorf(code.InvalidFormat, field, "%q is neither an IP address nor a DNS name", addr)
	}
	return strings.ToLower(addr)
}

func orName(fqdn bool) string {
	if fqdn {
		return " or a DNS name"
	}
	return ""
}

func (c entryConv) endpointPorts(at problem.Path, we *networking.WorkloadEntry, rules endpointRules) {
	for _, name := range slices.Sorted(maps.Keys(we.Ports)) {
		field := at.Field("ports").Key(name)
		c.CheckPortName(field, name)
		c.CheckPort(field, we.Ports[name])
		if rules.service != nil && !slices.Contains(rules.service, name) {
			c.Errorf(code.InvalidName, field, "the service has no port named %q%s; it has %s",
				name, spelling.DidYouMean(name, rules.service), strings.Join(rules.service, ", "))
		}
	}
}

// endpointLocality goes by what is said, and then by labels.
func (c entryConv) endpointLocality(at problem.Path, we *networking.WorkloadEntry, labels map[string]string) model.Locality {
	s := we.Locality
	if s == "" {
		from := at.Field("labels")
		if len(we.Labels) == 0 {
			from = "metadata.labels"
		}
		return c.LabelLocality(from, labels)
	}
	if strings.HasPrefix(s, "/") || strings.Contains(s, "//") {
		c.Errorf(code.InvalidFormat, at.Field("locality"), "%q has an empty part; write region/zone/subzone, or the first parts of it", s)
	}
	return c.Locality(at.Field("locality"), s)
}

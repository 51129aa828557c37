package index

import (
	"bytes"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Proxies share a group unless some object asks for a property in which they differ. The types of this file count the
// objects that ask. Each count method reports whether a property began or ceased to matter.

// labelUse counts the objects that ask for a label of clients, by label.
type labelUse map[string]int

// count adds the labels of a virtual service's sourceLabels.
func (u labelUse) count(v *model.VirtualService, by int) bool {
	changed := false
	for i := range v.HTTP {
		for j := range v.HTTP[i].Matches {
			changed = u.add(v.HTTP[i].Matches[j].SourceLabels, by) || changed
		}
	}
	for i := range v.TCP {
		changed = u.addL4(v.TCP[i].Matches, by) || changed
	}
	for i := range v.TLS {
		changed = u.addL4(v.TLS[i].Matches, by) || changed
	}
	return changed
}

func (u labelUse) addL4(matches []model.L4Match, by int) bool {
	changed := false
	for i := range matches {
		changed = u.add(matches[i].SourceLabels, by) || changed
	}
	return changed
}

// countRule counts the labels of a rule's selector and of its locality settings, and the cluster, which clients share with the
// endpoints of subsets.
func (u labelUse) countRule(r *model.DestinationRule, by int) bool {
	changed := u.add(r.WorkloadSelector, by)
	for i := range r.Subsets {
		if cluster, ok := r.Subsets[i].Labels[model.LabelCluster]; ok {
			changed = u.add(map[string]string{model.LabelCluster: cluster}, by) || changed
		}
	}
	for p := range policiesOf(r) {
		if p.LoadBalancer != nil {
			changed = u.countPriority(p.LoadBalancer.Locality, by) || changed
		}
	}
	return changed
}

// countPriority counts the labels of failoverPriority, which compares clients with endpoints. The locality and the node of clients
// are not compared as labels (see localityUsage).
func (u labelUse) countPriority(set *model.LocalityLB, by int) bool {
	if set == nil {
		return false
	}
	changed := false
	for _, p := range set.FailoverPriority {
		key, _, _ := strings.Cut(p, "=")
		if model.IsTopologyLabel(key) && key != model.LabelNetwork && key != model.LabelCluster {
			continue
		}
		changed = u.add(map[string]string{key: ""}, by) || changed
	}
	return changed
}

func (u labelUse) add(labels map[string]string, by int) bool {
	changed := false
	for k := range labels {
		before := u[k]
		u[k] += by
		if u[k] == 0 {
			delete(u, k)
		}
		changed = changed || before == 0 || before+by == 0
	}
	return changed
}

// relevant are those labels that some object asks for, here or in others.
func (u labelUse) relevant(labels map[string]string, others ...labelUse) map[string]string {
	out := map[string]string{}
	for _, use := range append(others, u) {
		for k := range use {
			if v, ok := labels[k]; ok {
				out[k] = v
			}
		}
	}
	return out
}

// CanonicalLabels writes labels as "k=v,k=v", sorted.
func CanonicalLabels(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	pairs := make([]string, 0, len(labels))
	for k, v := range labels {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// ParseLabels reads the text of CanonicalLabels.
func ParseLabels(s string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out[k] = v
		}
	}
	return out
}

// canonicalMetadata writes metadata as a query, "k=v&k=v", sorted. Unlike those of labels, its values may be any text.
func canonicalMetadata(metadata map[string]string) string {
	out := url.Values{}
	for k, v := range metadata {
		out.Set(k, v)
	}
	return out.Encode()
}

// ParseMetadata reads GroupKey.Metadata.
func ParseMetadata(s string) map[string]string {
	out := map[string]string{}
	values, err := url.ParseQuery(s)
	if err != nil {
		return out // canonicalMetadata does not write it
	}
	for k := range values {
		out[k] = values.Get(k)
	}
	return out
}

// policiesOf yields all policies of a rule: its own, its ports', its subsets' and their ports'.
func policiesOf(r *model.DestinationRule) iter.Seq[model.TrafficPolicy] {
	return func(yield func(model.TrafficPolicy) bool) {
		if !yield(r.Policy) || !each(r.Ports, yield) {
			return
		}
		for _, s := range r.Subsets {
			if !yield(s.Policy) || !each(s.Ports, yield) {
				return
			}
		}
	}
}

func each(ports map[uint32]model.TrafficPolicy, yield func(model.TrafficPolicy) bool) bool {
	for _, p := range ports {
		if !yield(p) {
			return false
		}
	}
	return true
}

// localityUsage counts the objects that ask for the locality and the node of clients.
type localityUsage struct {
	localities, nodes int
	namespaces        map[string]model.Distribution // for services without a distribution of their own
}

func (n *localityUsage) count(d model.Distribution, by int) bool {
	if d == model.DistributionUnset {
		return false
	}
	return n.add(by, by*one(slices.Contains(d.Labels(), model.LabelNode)))
}

func (n *localityUsage) countService(s *model.Service, by int) bool {
	changed := n.add(0, by*one(s.NodeLocal))
	return n.count(s.Distribution, by) || changed
}

func (n *localityUsage) countRule(r *model.DestinationRule, by int) bool {
	locality, node := usesLocality(r)
	return n.add(by*one(locality), by*one(node))
}

// countMesh counts the mesh's settings. Failover needs outlier detection. countRule counts the outlier detection of rules.
func (n *localityUsage) countMesh(mesh *model.Mesh, by int) bool {
	outlier := by * one(mesh.Baseline.OutlierDetection != nil)
	set := mesh.Locality
	if set == nil {
		return n.add(outlier, 0)
	}
	return n.add(outlier+by*one(len(set.Distribute) > 0), by*one(slices.Contains(set.FailoverPriority, model.LabelNode)))
}

// usesLocality reports whether endpoints of a rule's clients depend on their locality, and on their node.
func usesLocality(r *model.DestinationRule) (locality, node bool) {
	for p := range policiesOf(r) {
		lb := p.LoadBalancer
		set := lb != nil && lb.Locality != nil
		locality = locality || p.OutlierDetection != nil || set
		node = node || set && slices.Contains(lb.Locality.FailoverPriority, model.LabelNode)
	}
	return locality, node
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (n *localityUsage) add(localities, nodes int) bool {
	locality, node := n.localities > 0, n.nodes > 0
	n.localities, n.nodes = n.localities+localities, n.nodes+nodes
	return locality != (n.localities > 0) || node != (n.nodes > 0)
}

// locate puts the locality and node of a proxy into its key, if some object asks for them.
func (n *localityUsage) locate(k *GroupKey, x *endpointIndex, p *model.Proxy) {
	if n.localities > 0 {
		k.Locality = x.whereProxy(p)
	}
	if w := x.podOf(p); n.nodes > 0 && w != nil {
		k.Node = w.Node
	}
}

// of is the distribution of a service: its own, else its namespace's.
func (n *localityUsage) of(svc *model.Service) model.Distribution {
	if svc.Distribution != model.DistributionUnset {
		return svc.Distribution
	}
	return n.namespaces[svc.Namespace]
}

// proxyUse counts the EnvoyFilters that ask for the version and the metadata of proxies.
type proxyUse struct {
	versions int      // patches for some versions
	metadata labelUse // keys of nodes' metadata
}

func (u *proxyUse) count(f *model.EnvoyFilter, by int) bool {
	before, changed := u.versions > 0, false
	for i := range f.Patches {
		p := &f.Patches[i]
		if p.ProxyVersion != nil {
			u.versions += by
		}
		changed = u.metadata.add(p.ProxyMetadata, by) || changed
	}
	return changed || before != (u.versions > 0)
}

// of is the part of a proxy's version and metadata that some EnvoyFilter asks for.
func (u *proxyUse) of(p *model.Proxy) (version, metadata string) {
	if u.versions > 0 {
		version = p.IstioVersion
	}
	return version, canonicalMetadata(u.metadata.relevant(p.Metadata))
}

// countNaming counts the labels of an EnvoyFilter that changes only inbound configuration and names outbound clusters.
func (x *Index) countNaming(f *model.EnvoyFilter, by int) bool {
	if f.ShapesOutbound() || !slices.ContainsFunc(f.Patches, func(p model.EnvoyPatch) bool { return NamesClusters(p.Value) }) {
		return false
	}
	changed := false
	for _, labels := range model.Selectors(f) {
		changed = x.naming.add(labels, by) || changed
	}
	return changed
}

// NamesClusters reports whether a text may name outbound clusters. Its form is not known.
func NamesClusters(text []byte) bool { return bytes.Contains(text, []byte(resourcename.Outbound+"|")) }

// countCredentials counts the rules and Sidecars of a namespace that name credentials.
func (x *Index) countCredentials(o model.Object, by int) bool {
	return namesCredentials(o) && countIn(x.credentials, o.Metadata().Namespace, by)
}

// namesCredentials reports whether an object names credentials. As in Istio only rules that select workloads count:
// other workloads would wait for Secrets that they may not have.
func namesCredentials(o model.Object) bool {
	switch o := o.(type) {
	case *model.DestinationRule:
		return len(o.WorkloadSelector) > 0 && model.NeedsSecrets(o.Credentials())
	case *model.Sidecar:
		return model.NeedsSecrets(o.Credentials())
	}
	return false
}

// countPulls counts the plugins of a namespace that name credentials for a registry.
func (x *Index) countPulls(p *model.WasmPlugin, by int) bool {
	return p != nil && p.Module.PullSecret != "" && countIn(x.pulls, p.Namespace, by)
}

// portIn is a port of headless services whose Pods are in a namespace; empty: in any.
type portIn struct {
	namespace string
	port      uint32
}

// countHeadless counts the ports of a headless service. Endpoints of a service without a selector may be in any namespace.
func (x *Index) countHeadless(s *model.Service, by int) bool {
	if !s.Headless {
		return false
	}
	ns, changed := s.Namespace, false
	if len(s.Selector) == 0 {
		ns = ""
	}
	for i := range s.Ports {
		k := portIn{ns, s.Ports[i].Number}
		changed = countIn(x.headless, k, by) && x.sidecarsOpen(k) || changed
	}
	return changed
}

// sidecarsOpen reports whether workloads of a namespace may listen at their own address for a port, by a Sidecar.
func (x *Index) sidecarsOpen(k portIn) bool {
	for ns, all := range x.sidecars {
		if k.namespace != "" && ns != k.namespace && ns != x.mesh.RootNamespace {
			continue
		}
		for _, s := range all {
			if slices.ContainsFunc(s.Ingress, func(in model.IngressListener) bool { return in.Port.Number == k.port && opensOwnAddress(&in) }) {
				return true
			}
		}
	}
	return false
}

// opensOwnAddress reports whether workloads with redirection listen at their own address for an ingress listener.
func opensOwnAddress(in *model.IngressListener) bool {
	return in.Bind == "" && in.Capture == model.CaptureNone
}

// countIn reports whether the first came or the last went.
func countIn[K comparable](m map[K]int, k K, by int) bool {
	before := m[k]
	m[k] += by
	if before+by == 0 {
		delete(m, k)
	}
	return before == 0 || before+by == 0
}

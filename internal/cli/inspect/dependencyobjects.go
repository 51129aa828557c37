package inspect

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// object is one that limits what is called, and what its reader must know.
type object struct {
	notes []string
	value map[string]any // nil: only notes
}

// printManifests writes objects as YAML. Notes are comments.
func printManifests(w io.Writer, list []object) error {
	var b strings.Builder
	for i, o := range list {
		if i > 0 {
			b.WriteString("---\n")
		}
		for _, n := range o.notes {
			for line := range strings.SplitSeq(n, "\n") {
				b.WriteString("# " + terminal.Escape(line) + "\n") // names of others must not end the comment
			}
		}
		if o.value == nil {
			continue
		}
		text, err := yaml.Marshal(o.value)
		if err != nil {
			return err
		}
		b.Write(text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// selected begins an object for a workload; nil if no labels select it.
func selected(w *dependencies.WorkloadReport, kind string) (o object, labels map[string]any) {
	name := w.Name + "." + w.Namespace
	if len(w.Selector) == 0 {
		o.notes = append(o.notes, fmt.Sprintf("%s: no %s: it has no Pods now, or they have no labels in common", name, kind))
		return o, nil
	}
	if w.Shared {
		o.notes = append(o.notes, name+": these labels also select Pods of other workloads: label its Pods")
	}
	labels = map[string]any{}
	for k, v := range w.Selector {
		labels[k] = v
	}
	return o, labels
}

func manifest(apiVersion, kind, namespace, name string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec}
}

// objectName names the object of a workload. Workloads of one name may have several service accounts: unless that has the
// same name, it follows. suffix ends the name.
func objectName(w *dependencies.WorkloadReport, suffix string) string {
	name := w.Name
	if w.ServiceAccount != w.Name {
		name += "." + w.ServiceAccount
	}
	if most := validation.DNS1123SubdomainMaxLength - len(suffix); len(name) > most || strings.Contains(w.Name+w.ServiceAccount, ".") {
		hash := fmt.Sprintf("-%x", sha256.Sum256([]byte(w.Name+"/"+w.ServiceAccount)))[:9]
		name = strings.TrimRight(name[:min(len(name), most-len(hash))], "-.") + hash
	}
	return name + suffix
}

// sidecarsOf returns a Sidecar for each workload, or for each namespace.
func sidecarsOf(r *dependencies.Report, byNamespace bool) (out []object) {
	if byNamespace {
		return namespaceSidecars(r)
	}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		o, labels := selected(w, "Sidecar")
		if labels == nil {
			out = append(out, o)
			continue
		}
		hosts, notes := hostsOf(r, w.Namespace, w.Calls)
		o.notes = append(o.notes, notes...)
		o.value = manifest(sidecarVersion, "Sidecar", w.Namespace, objectName(w, ""), map[string]any{
			"workloadSelector": map[string]any{"labels": labels}, "egress": []any{map[string]any{"hosts": hosts}},
		})
		out = append(out, o)
	}
	return out
}

const sidecarVersion = "networking.istio.io/v1"

func namespaceSidecars(r *dependencies.Report) (out []object) {
	calls := map[string][]dependencies.CallReport{}
	var namespaces []string
	for i := range r.Workloads {
		w := &r.Workloads[i]
		if calls[w.Namespace] == nil {
			namespaces = append(namespaces, w.Namespace)
		}
		calls[w.Namespace] = append(calls[w.Namespace], w.Calls...)
	}
	for _, ns := range namespaces {
		hosts, notes := hostsOf(r, ns, calls[ns])
		out = append(out, object{notes, manifest(sidecarVersion, "Sidecar", ns, "default", map[string]any{"egress": []any{map[string]any{"hosts": hosts}}})})
	}
	return out
}

// hostsOf returns the hosts of a Sidecar in a namespace: those that are called, and all of the root namespace, where shared
// services such as collectors of traces are.
func hostsOf(r *dependencies.Report, namespace string, calls []dependencies.CallReport) (hosts, notes []string) {
	for i := range calls {
		c := &calls[i]
		switch {
		case c.Service.Kind == "":
			notes = append(notes, fmt.Sprintf("%s: left out: the service does not exist any longer", c.Host))
		case c.Service.Namespace == namespace:
			hosts = append(hosts, "./"+string(c.Host))
		default:
			hosts = append(hosts, c.Service.Namespace+"/"+string(c.Host))
		}
	}
	hosts = append(hosts, r.RootNamespace+"/*")
	slices.Sort(hosts)
	slices.Sort(notes)
	return slices.Compact(hosts), slices.Compact(notes)
}

// notLearned precedes NetworkPolicies.
const notLearned = `These policies allow DNS, the control plane and the calls of applications. If sidecars use them, add rules for
a certificate authority (global.caAddress), collectors of traces, metrics and access logs, and ext_authz servers.`

// networkPoliciesOf returns a NetworkPolicy for each workload.
func networkPoliciesOf(r *dependencies.Report) (out []object) {
	out = append(out, object{notes: []string{notLearned}})
	for i := range r.Workloads {
		w := &r.Workloads[i]
		o, labels := selected(w, "NetworkPolicy")
		if labels == nil {
			out = append(out, o)
			continue
		}
		egress := []any{
			map[string]any{"ports": []any{networkPort("UDP", "53"), networkPort("TCP", "53")}}, // DNS
			map[string]any{
				"to": []any{map[string]any{
					"namespaceSelector": matching(map[string]any{model.LabelNamespace: r.RootNamespace}),
					"podSelector":       matching(map[string]any{"app.kubernetes.io/name": "moonsail"}),
				}},
				"ports": []any{networkPort("TCP", "15012")},
			},
		}
		for j := range w.Calls {
			rule, notes := networkRule(&w.Calls[j])
			o.notes = append(o.notes, notes...)
			if rule != nil {
				egress = append(egress, rule)
			}
		}
		o.value = manifest("networking.k8s.io/v1", "NetworkPolicy", w.Namespace, objectName(w, "-calls"), map[string]any{
			"podSelector": matching(labels), "policyTypes": []any{"Egress"}, "egress": egress,
		})
		out = append(out, o)
	}
	return out
}

func matching(labels map[string]any) map[string]any { return map[string]any{"matchLabels": labels} }

// networkRule returns the rule for calls to a service; nil: the service gets no rule.
func networkRule(c *dependencies.CallReport) (rule map[string]any, notes []string) {
	s := &c.Service
	var ports []any
	for _, p := range s.Ports {
		if len(c.Ports) == 0 || slices.Contains(c.Ports, p.Number) {
			protocol := "TCP"
			if p.Protocol == model.ProtocolUDP {
				protocol = "UDP"
			}
			ports = append(ports, networkPort(protocol, p.Target))
		}
	}
	switch {
	case s.Kind == "":
		return nil, []string{fmt.Sprintf("%s: left out: the service does not exist any longer", c.Host)}
	case len(ports) == 0:
		return nil, []string{fmt.Sprintf("%s: left out: the service has none of the called ports now", c.Host)}
	case len(c.Ports) == 0 && len(ports) > 1:
		notes = append(notes, fmt.Sprintf("%s: all ports of the service: which of them are called is unknown", c.Host))
	}
	to := networkPeers(s)
	if len(to) == 0 { // a rule without them allows any address
		return nil, []string{fmt.Sprintf("%s: left out: no Pods and no fixed addresses serve it: add a rule with its addresses", c.Host)}
	}
	if len(s.Names) > 0 {
		notes = append(notes, fmt.Sprintf("%s: without its endpoints %s, which have no fixed addresses: add theirs", c.Host, strings.Join(s.Names, ", ")))
	}
	return map[string]any{"ports": ports, "to": to}, notes
}

// networkPeers returns what serves a service: Pods, and addresses of a ServiceEntry.
func networkPeers(s *dependencies.Service) (to []any) {
	if len(s.Pods) > 0 {
		labels := map[string]any{}
		for k, v := range s.Pods {
			labels[k] = v
		}
		to = append(to, map[string]any{
			"namespaceSelector": matching(map[string]any{model.LabelNamespace: s.Namespace}), "podSelector": matching(labels),
		})
	}
	for _, a := range s.Addresses {
		if ip, err := netip.ParseAddr(a); err == nil {
			to = append(to, map[string]any{"ipBlock": map[string]any{"cidr": netip.PrefixFrom(ip, ip.BitLen()).String()}})
		}
	}
	return to
}

// networkPort is a port of a NetworkPolicy, by number or by the name of a Pod's port.
func networkPort(protocol, port string) map[string]any {
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		return map[string]any{"protocol": protocol, "port": n}
	}
	return map[string]any{"protocol": protocol, "port": port}
}

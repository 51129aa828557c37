package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// Locality is where a workload runs. Empty parts are unknown.
type Locality struct {
	Region, Zone, Subzone string
}

// ParseLocality reads "region/zone/subzone". Like Istio it takes what is beyond three parts for the subzone's; see Check.
func ParseLocality(s string) Locality {
	p := strings.SplitN(s, "/", 3)
	for len(p) < 3 {
		p = append(p, "")
	}
	return Locality{p[0], p[1], p[2]}
}

// String is "region/zone/subzone" without trailing empty parts.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.Subzone, "/")
}

// Check tells what is wrong with a locality that somebody wrote.
func (l Locality) Check() error {
	if strings.Contains(l.Subzone, "/") {
		return fmt.Errorf("%q has more than three parts: write region/zone/subzone, or less of it", l)
	}
	return nil
}

// Health of an endpoint, as far as the source knows it.
type Health uint8

// The healths. Draining endpoints take no new requests but keep those they have.
const (
	Healthy Health = iota
	Unhealthy
	Draining
)

// Endpoint is one address that serves one or more ports of a service.
type Endpoint struct {
	Address  string            // IP address, DNS name, or an absolute path of a Unix socket
	Ports    map[string]uint32 // service port name -> port; absent: the service's target port
	Labels   map[string]string // for subsets
	Locality Locality
	Node     string // empty: not known
	Weight   uint32 // 0 means 1
	Health   Health
	Network  string

	Workload       string // name of the workload, for telemetry
	Namespace      string
	ServiceAccount string
	// TLS is what its sidecar accepts; nil: it has none that speaks mutual TLS.
	TLS *PeerTLS
}

// SpeaksMTLS tells whether a caller of one of its ports is to speak mutual TLS.
func (e *Endpoint) SpeaksMTLS(port uint32) bool { return e.TLS != nil && e.TLS.Of(port) != MTLSDisable }

// EndpointSlice is one slice of a Kubernetes service's endpoints. Labels of its
// endpoints come from the workloads (Pods) that they refer to, by name.
type EndpointSlice struct {
	Meta
	Service string // name of the service in the same namespace
	Ports   []SlicePort
	Members []SliceEndpoint
	// PodsListed says that its source tells of all Pods: one that a member names and that is not there is
	// not known yet, or gone. Else nothing follows from that, and the member counts as it is.
	PodsListed bool
}

// SlicePort maps a service port's name to the number that the endpoints listen on.
type SlicePort struct {
	Name   string
	Number uint32
}

// SliceEndpoint is one entry of an EndpointSlice.
type SliceEndpoint struct {
	Addresses   []string // the first one is used
	Ready       bool     // ready to take requests
	Serving     bool     // as Ready, but also while terminating
	Terminating bool
	Pod         string // name of the Pod of the same namespace; empty: none of it
	Node, Zone  string
}

// Workload is something that runs: a Pod or a WorkloadEntry.
type Workload struct {
	Meta
	Addresses      []string
	Owner          string // what made it, a Deployment or the like; empty: not known
	ServiceAccount string
	Node           string
	Locality       Locality
	Network        string
	Weight         uint32
	NamedPorts     map[string]uint32 // container ports by name; of a WorkloadEntry: service ports' names -> port
	HostNetwork    bool              // shares its node's address, so it has no sidecar
	Ready          bool
	Terminating    bool
}

// Address is the workload's first address, or "".
func (w *Workload) Address() string {
	if len(w.Addresses) == 0 {
		return ""
	}
	return w.Addresses[0]
}

// Account is the workload's service account.
func (w *Workload) Account() string {
	if w.ServiceAccount == "" {
		return "default"
	}
	return w.ServiceAccount
}

// Node is a machine of the cluster: where its Pods are.
type Node struct {
	Meta
	Locality Locality
}

// On is the locality of a workload on a node: its own, completed from the node's where
// that does not contradict it.
func (l Locality) On(node Locality) Locality {
	for _, p := range []struct{ own, node *string }{
		{&l.Region, &node.Region}, {&l.Zone, &node.Zone}, {&l.Subzone, &node.Subzone},
	} {
		if *p.own != "" && *p.own != *p.node {
			break
		}
		*p.own = *p.node
	}
	return l
}

// SelectorMatches tells whether labels have all pairs of selector. An empty selector
// matches everything: callers for whom it means nothing must ask before.
func SelectorMatches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// IsIP tells whether an endpoint's address needs no resolving.
func IsIP(address string) bool {
	_, err := netip.ParseAddr(address)
	return err == nil
}

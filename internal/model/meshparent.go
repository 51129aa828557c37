package model

import "slices"

// A MeshParent is a Service or ServiceEntry that is a parent of a route: the route is for sidecars that call it. Clients of
// the route's namespace obey the route. Clients of other namespaces do if the parent belongs to the route's namespace.
type MeshParent struct {
	Host      Host   // empty for a ServiceEntry, whose hosts the index fills in
	Namespace string // of the parent
	Entry     *Key   // of a ServiceEntry
	Port      uint32 // 0: all ports
}

// MeshHosts are the hosts that sidecars route by the virtual service. A route of the Gateway API has those of its parents:
// its own hosts are for Gateways.
func (v *VirtualService) MeshHosts() []Host {
	if len(v.Parents) == 0 {
		return v.Hosts
	}
	var out []Host
	for _, p := range v.Parents {
		if p.Host != "" && !slices.Contains(out, p.Host) {
			out = append(out, p.Host)
		}
	}
	return out
}

// ForClients reports whether clients of a namespace obey the virtual service when they call a host. It does not consider
// visibility.
func (v *VirtualService) ForClients(namespace string, h Host) bool {
	return len(v.Parents) == 0 || slices.ContainsFunc(v.Parents, func(p MeshParent) bool {
		return p.Host == h && (v.Namespace == namespace || v.Namespace == p.Namespace)
	})
}

// ForPort reports whether the virtual service is for a port of a host. A match can restrict an Istio VirtualService further.
func (v *VirtualService) ForPort(h Host, port uint32) bool {
	return len(v.Parents) == 0 || slices.ContainsFunc(v.Parents, func(p MeshParent) bool {
		return p.Host == h && (p.Port == 0 || p.Port == port)
	})
}

// Merges reports whether the HTTP rules of two virtual services for one host apply together, as those of the Gateway API's routes
// do. Otherwise only one of the two applies to a request.
func (v *VirtualService) Merges(o *VirtualService) bool {
	return v.Kind.IsKubernetesRoute() && o.Kind.IsKubernetesRoute() && v.Namespace == o.Namespace
}

// InEntries returns the virtual service with the hosts of ServiceEntries that are parents. hosts returns those of one.
func (v *VirtualService) InEntries(hosts func(Key) []Host) *VirtualService {
	out := *v
	out.Parents = nil
	for _, p := range v.Parents {
		if p.Entry == nil {
			out.Parents = append(out.Parents, p)
			continue
		}
		for _, p.Host = range hosts(*p.Entry) {
			out.Parents = append(out.Parents, p)
		}
	}
	if len(out.Parents) == 0 {
		out.Parents = v.Parents // so that the route is not for all hosts
	}
	return &out
}

// HasEntries reports whether a ServiceEntry is a parent of the route.
func (v *VirtualService) HasEntries() bool {
	return slices.ContainsFunc(v.Parents, func(p MeshParent) bool { return p.Entry != nil })
}

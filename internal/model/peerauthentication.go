package model

import (
	"maps"
	"slices"
)

// LabelTLSMode is the label by which a workload says that its sidecar speaks mutual TLS.
// The injector sets it.
const (
	LabelTLSMode      = "security.istio.io/tlsMode"
	TLSModeLabelIstio = "istio"
)

// SpeaksMTLS tells whether a workload with these labels has a sidecar with an identity.
func SpeaksMTLS(labels map[string]string) bool { return labels[LabelTLSMode] == TLSModeLabelIstio }

// MTLSMode is what a workload's sidecar accepts.
type MTLSMode string

// The modes. Unset inherits from the policy above: the workload's from its namespace's,
// that from the mesh's, which is PERMISSIVE.
const (
	MTLSUnset      MTLSMode = ""
	MTLSDisable    MTLSMode = "DISABLE"    // plain text; TLS is the application's own
	MTLSPermissive MTLSMode = "PERMISSIVE" // both
	MTLSStrict     MTLSMode = "STRICT"     // mutual TLS only
)

// PeerAuthentication says what workloads accept. In the root namespace and without a
// selector it is for the whole mesh. One with a selector counts outside of it only, as in
// Istio.
type PeerAuthentication struct {
	Meta
	Selector map[string]string // empty: the whole namespace
	Mode     MTLSMode
	Ports    map[uint32]MTLSMode // by workload port; only with a selector
}

// SelectorLabels are those of the workloads it is for.
func (p *PeerAuthentication) SelectorLabels() map[string]string { return p.Selector }

// ShapesOutbound is false: callers learn of it by the endpoints.
func (p *PeerAuthentication) ShapesOutbound() bool { return false }

// Disables tells whether some port may be served in plain text only because of it.
func (p *PeerAuthentication) Disables() bool {
	if p.Mode == MTLSDisable {
		return true
	}
	for _, m := range p.Ports {
		if m == MTLSDisable {
			return true
		}
	}
	return false
}

// PeerTLS is what one workload accepts, with everything inherited.
type PeerTLS struct {
	Mode  MTLSMode
	Ports map[uint32]MTLSMode // by workload port, where they differ from Mode or are named
}

// Of is the mode of one workload port.
func (t *PeerTLS) Of(port uint32) MTLSMode {
	if m, ok := t.Ports[port]; ok {
		return m
	}
	return t.Mode
}

// Accepts tells whether mutual TLS is accepted on some port.
func (t *PeerTLS) Accepts() bool {
	if t.Mode != MTLSDisable {
		return true
	}
	for _, m := range t.Ports {
		if m != MTLSDisable {
			return true
		}
	}
	return false
}

// AcceptsEverywhere tells whether mutual TLS is accepted on every port.
func (t *PeerTLS) AcceptsEverywhere() bool {
	for _, m := range t.Ports {
		if m == MTLSDisable {
			return false
		}
	}
	return t.Mode != MTLSDisable
}

// EffectivePeerAuthentications are those of the policies that select one workload which count for
// it: at each level (mesh, namespace, workload, in this order) the first one, which is the oldest.
func EffectivePeerAuthentications(rootNamespace string, policies []*PeerAuthentication) []*PeerAuthentication {
	levels := peerLevels(rootNamespace, policies)
	return slices.DeleteFunc(levels[:], func(p *PeerAuthentication) bool { return p == nil })
}

func peerLevels(rootNamespace string, policies []*PeerAuthentication) (levels [3]*PeerAuthentication) {
	for _, p := range policies {
		level := 1
		switch {
		case len(p.Selector) > 0 && p.Namespace == rootNamespace:
			continue
		case len(p.Selector) > 0:
			level = 2
		case p.Namespace == rootNamespace:
			level = 0
		}
		if levels[level] == nil {
			levels[level] = p
		}
	}
	return levels
}

// EffectivePeerTLS composes the policies that select one workload, see EffectivePeerAuthentications.
func EffectivePeerTLS(rootNamespace string, policies []*PeerAuthentication) *PeerTLS {
	levels := peerLevels(rootNamespace, policies)
	out := &PeerTLS{Mode: MTLSPermissive}
	for _, p := range levels {
		if p != nil && p.Mode != MTLSUnset {
			out.Mode = p.Mode
		}
	}
	if w := levels[2]; w != nil && len(w.Ports) > 0 {
		out.Ports = maps.Clone(w.Ports)
		for port, mode := range out.Ports {
			if mode == MTLSUnset {
				out.Ports[port] = out.Mode
			}
		}
	}
	return out
}

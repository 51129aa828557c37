package kube

import (
	"hash/maphash"
	"maps"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// annotationOfMesh is part of the names of annotations that matter to a mesh.
const annotationOfMesh = "istio.io/"

// pool removes unread parts of objects, and shares equal ones: the Pods of one ReplicaSet have the same labels, ports
// and service account. One goroutine uses it.
type pool struct {
	seed    maphash.Seed
	labels  map[uint64]map[string]string
	ports   map[uint64]map[string]uint32
	strings map[string]string
}

// maxPooled bounds each part of a pool. A full part is emptied: objects keep what they share, and later objects share
// again.
const maxPooled = 16384

func newPool() *pool {
	return &pool{
		seed: maphash.MakeSeed(), labels: map[uint64]map[string]string{}, ports: map[uint64]map[string]uint32{},
		strings: map[string]string{},
	}
}

// trim reduces an object that is not shared yet.
func (p *pool) trim(o model.Object) {
	if o == nil {
		return
	}
	m := o.Metadata()
	m.Annotations = keptAnnotations(m)
	m.Labels = shared(p.seed, p.labels, m.Labels)
	m.Namespace = p.text(m.Namespace)
	switch o := o.(type) {
	case *model.Node:
		m.Labels = nil // its locality was read from them
	case *model.Workload:
		o.Node, o.ServiceAccount, o.Network = p.text(o.Node), p.text(o.ServiceAccount), p.text(o.Network)
		o.Owner = p.text(o.Owner)
		o.Locality = model.Locality{Region: p.text(o.Locality.Region), Zone: p.text(o.Locality.Zone), Subzone: p.text(o.Locality.Subzone)}
		o.NamedPorts = shared(p.seed, p.ports, o.NamedPorts)
	case *model.EndpointSlice:
		for i := range o.Members {
			o.Members[i].Node, o.Members[i].Zone = p.text(o.Members[i].Node), p.text(o.Members[i].Zone)
		}
	}
}

// keptAnnotations returns the annotations that may matter. Those of Pods concern only their sidecars.
func keptAnnotations(m *model.Meta) map[string]string {
	if m.Kind == model.KindPod {
		return nil
	}
	var kept map[string]string
	for k, v := range m.Annotations {
		if !strings.Contains(k, annotationOfMesh) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[k] = v
	}
	return kept
}

func (p *pool) text(s string) string {
	if known, ok := p.strings[s]; ok {
		return known
	}
	if len(p.strings) >= maxPooled {
		clear(p.strings)
	}
	p.strings[s] = s
	return s
}

// shared returns a map equal to m, an earlier one if possible.
func shared[V comparable](seed maphash.Seed, pool map[uint64]map[string]V, m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	var sum uint64 // independent of the order
	for k, v := range m {
		sum += maphash.Comparable(seed, k) * (2*maphash.Comparable(seed, v) + 1)
	}
	if known, ok := pool[sum]; ok {
		if maps.Equal(known, m) {
			return known
		}
		return m
	}
	if len(pool) >= maxPooled {
		clear(pool)
	}
	pool[sum] = m
	return m
}

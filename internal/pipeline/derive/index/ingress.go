package index

import (
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// ingresses are Kubernetes' Ingresses, with what those of the mesh have become.
type ingresses struct {
	all     map[model.Key]*model.Ingress
	classes map[string]*model.IngressClass
	served  map[model.Key]servedIngress
}

// servedIngress is an Ingress of the mesh as a Gateway and VirtualServices.
type servedIngress struct {
	gateway *model.Gateway
	rules   []*model.VirtualService
}

func newIngresses() ingresses {
	return ingresses{map[model.Key]*model.Ingress{}, map[string]*model.IngressClass{}, map[model.Key]servedIngress{}}
}

// replaceIngress takes an Ingress.
func (x *Index) replaceIngress(k model.Key, now *model.Ingress, touched *Touched) {
	if now == nil {
		delete(x.ingresses.all, k)
	} else {
		x.ingresses.all[k] = now
	}
	x.serveIngress(k, touched)
}

// replaceIngressClass takes a class. The Ingresses that name it may come or go.
func (x *Index) replaceIngressClass(name string, now *model.IngressClass, touched *Touched) {
	if now == nil {
		delete(x.ingresses.classes, name)
	} else {
		x.ingresses.classes[name] = now
	}
	x.serveIngresses(touched, func(i *model.Ingress) bool { return i.Class == name })
}

// serveIngresses decides again about some Ingresses.
func (x *Index) serveIngresses(touched *Touched, which func(*model.Ingress) bool) {
	for _, k := range slices.SortedFunc(maps.Keys(x.ingresses.all), model.Key.Compare) {
		if which(x.ingresses.all[k]) {
			x.serveIngress(k, touched)
		}
	}
}

// serveIngress replaces what an Ingress is in the mesh.
func (x *Index) serveIngress(k model.Key, touched *Touched) {
	var now servedIngress
	if i := x.ingresses.all[k]; i != nil && x.mesh.Ingress.Serves(i, x.ingresses.classes[i.Class]) {
		now = servedIngress{i.Gateway(x.mesh.Ingress), i.Rules}
	}
	was := x.ingresses.served[k]
	if was.gateway != nil || now.gateway != nil {
		x.replacePolicy(asObject(was.gateway), asObject(now.gateway), touched)
	}
	for _, v := range was.rules {
		x.replaceVirtualService(v, nil, touched)
	}
	for _, v := range now.rules {
		x.replaceVirtualService(nil, v, touched)
	}
	if delete(x.ingresses.served, k); now.gateway != nil {
		x.ingresses.served[k] = now
	}
}

// asObject keeps a nil pointer out of the interface.
func asObject(g *model.Gateway) model.Object {
	if g == nil {
		return nil
	}
	return g
}

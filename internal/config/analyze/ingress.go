package analyze

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// kubernetesIngress reports parts of an Ingress of the mesh without effect, backends that do not exist, and an Ingress that
// names Istio's class but is not served.
func (c gatewayChecks) kubernetesIngress(i *model.Ingress) {
	settings := model.DefaultIngress()
	if c.mesh != nil && c.mesh.Ingress != nil {
		settings = *c.mesh.Ingress
	}
	if !settings.Serves(i, c.classes[i.Class]) {
		if i.Class == settings.Class && i.Annotation == nil && settings.Mode != model.IngressOff {
			c.warnf(code.ClassNotFound, i, "spec.ingressClassName", "no IngressClass %s has the controller istio.io/ingress-controller, so this Ingress has no effect: create the class, or use the annotation kubernetes.io/ingress.class", i.Class)
		}
		return
	}
	for _, n := range i.Notes {
		c.warnf(code.NoEffect, i, n.Field, "%s", n.Text)
	}
	reported := map[model.Destination]bool{}
	for _, v := range i.Rules {
		for r := range v.HTTP {
			if d := v.HTTP[r].Backends[0].Destination; !reported[d] {
				reported[d] = true
				c.ingressBackend(i, d)
			}
		}
	}
}

// ingressBackend reports a Service that does not exist, or does not have the port.
func (c gatewayChecks) ingressBackend(i *model.Ingress, d model.Destination) {
	svc := c.kubernetesService(d.Host)
	if svc == nil && c.serviceElsewhere(d.Host) {
		c.hostElsewhere(i.Key, "spec.rules", d.Host)
		return
	}
	if svc == nil {
		c.errorf(code.BackendNotFound, i, "spec.rules", "requests fail: %s", destinationChecks(c).noHost(d.Host, i.Namespace, false))
		return
	}
	if svc.ExternalName != "" {
		return
	}
	for p := range svc.Ports {
		if svc.Ports[p].Number == d.Port || d.Port == 0 && svc.Ports[p].Name == d.PortName {
			return
		}
	}
	port := d.PortName
	if d.Port != 0 {
		port = fmt.Sprint(d.Port)
	}
	c.errorf(code.BackendNotFound, i, "spec.rules", "the Service %s has no port %s, so requests for it fail; it has %s", svc.Name, port, ports(svc))
}

package inject

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// GatewayTemplate makes a Pod a gateway: a router without an application. It is built in; the annotation
// inject.istio.io/templates selects it, as in Istio. A configuration may replace it.
const GatewayTemplate = "gateway"

// routerFlag is the agent's argument in gateways.
const routerFlag = "--type=router"

// makeRouter sets the request up for a router. It is the Pod's only container, and receives only connections to its own
// address.
func (r *request) makeRouter() {
	r.router, r.native, r.hold = true, false, false
	r.settings.Mode = intercept.ModeNone
}

// gateway is the built-in template of gateways.
func (r *request) gateway() (*corev1.Pod, error) {
	out, err := r.sidecar()
	if err != nil {
		return nil, err
	}
	delete(out.Labels, labelTLSMode) // Gateways determine its listeners
	proxy := &out.Spec.Containers[0]
	proxy.Args = append(proxy.Args, routerFlag)
	// Listeners may have any port without privileges.
	out.Spec.SecurityContext = &corev1.PodSecurityContext{
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
	}
	out.ObjectMeta = metav1.ObjectMeta{Labels: out.Labels, Annotations: map[string]string{model.LabelRevision: cmp.Or(r.Revision, model.DefaultRevision)}}
	return out, nil
}

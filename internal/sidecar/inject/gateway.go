package inject

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// GatewayTemplate makes a Pod a gateway: a router, and no application. It is built in, and named
// by the annotation inject.istio.io/templates, as in Istio. A configuration may have one of this
// name in its place.
const GatewayTemplate = "gateway"

// makeRouter has the request be for a router: it is the Pod's only container, and nothing comes
// to it but by its own address.
func (r *request) makeRouter() {
	r.native, r.hold = false, false
	r.settings.Mode = intercept.ModeNone
}

// gateway is the built-in template of gateways.
func (r *request) gateway() (*corev1.Pod, error) {
	out, err := r.sidecar()
	if err != nil {
		return nil, err
	}
	delete(out.Labels, labelTLSMode) // its listeners are as Gateways say
	proxy := &out.Spec.Containers[0]
	proxy.Args = append(proxy.Args, "--type=router")
	// Listeners may have any port, without rights.
	out.Spec.SecurityContext = &corev1.PodSecurityContext{
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
	}
	out.ObjectMeta = metav1.ObjectMeta{Labels: out.Labels, Annotations: map[string]string{model.LabelRevision: first(r.Revision, model.DefaultRevision)}}
	return out, nil
}

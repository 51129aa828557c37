package model

// DrainNotice says that a workload is about to end: its endpoints are to take no more calls,
// whatever else lists them. No source has such objects; the control plane makes one when a
// sidecar asks to leave. Its name is the proxy's, which is the Pod's.
type DrainNotice struct {
	Meta
	Addresses []string // of the workload
}

// Concerns tells whether a departure is that of an endpoint at one of its addresses. pod is
// the name of the Pod behind the endpoint, in the namespace ns; empty: not known. Another
// Pod may have come to have the address.
func (d *DrainNotice) Concerns(ns, pod string) bool {
	return pod == "" || d.Namespace == ns && d.Name == pod
}

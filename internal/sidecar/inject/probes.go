package inject

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/sidecar/agent/appprobe"
)

// The kubelet is outside of the mesh: strict mutual TLS would refuse its probes, and TCP probes would reach the sidecar
// instead of the application. So it probes the agent by HTTP, which probes the application (package appprobe).

// prober is a probe that the agent makes, in Istio's form.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	Sleep          *corev1.SleepAction     `json:"sleep,omitempty"` // Istio has none
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

// handler is one probe or lifecycle hook of a container.
type handler struct {
	path    string
	http    **corev1.HTTPGetAction
	tcp     **corev1.TCPSocketAction
	grpc    **corev1.GRPCAction // nil: lifecycle hooks have none
	timeout int32
	hook    bool // of the lifecycle
	atStart bool // the kubelet starts the next container after it
}

// handlers returns all handlers of a container.
func handlers(c *corev1.Container) []handler {
	var out []handler
	for _, p := range []struct {
		name    string
		probe   *corev1.Probe
		atStart bool
	}{{"readyz", c.ReadinessProbe, false}, {"livez", c.LivenessProbe, false}, {"startupz", c.StartupProbe, true}} {
		if p.probe != nil {
			out = append(out, handler{appprobe.HealthPrefix + c.Name + "/" + p.name, &p.probe.HTTPGet, &p.probe.TCPSocket, &p.probe.GRPC, p.probe.TimeoutSeconds, false, p.atStart})
		}
	}
	if c.Lifecycle == nil {
		return out
	}
	for _, l := range []struct {
		path    string
		hook    *corev1.LifecycleHandler
		atStart bool
	}{{appprobe.PreStopPath(c.Name), c.Lifecycle.PreStop, false}, {appprobe.LifecyclePrefix + c.Name + "/poststartz", c.Lifecycle.PostStart, true}} {
		if l.hook != nil {
			out = append(out, handler{l.path, &l.hook.HTTPGet, &l.hook.TCPSocket, nil, 0, true, l.atStart})
		}
	}
	return out
}

// eachHandler calls do for the handlers of a Pod's containers, without injected ones.
func eachHandler(pod *corev1.Pod, do func(*corev1.Container, handler)) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if c := &list[i]; c.Name != proxyContainer && c.Name != initContainer {
				for _, h := range handlers(c) {
					do(c, h)
				}
			}
		}
	}
}

// moveHandlers makes the agent answer the kubelet's probes and hooks, and stores the original ones for the agent.
func (r *request) moveHandlers(pod *corev1.Pod, sidecar *corev1.Container) error {
	moved := map[string]*prober{}
	if err := r.moveProbes(pod, moved); err != nil {
		return err
	}
	if err := r.holdUntilDrained(pod, moved); err != nil {
		return err
	}
	if len(moved) == 0 {
		return nil
	}
	text, err := json.Marshal(moved)
	sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: appprobe.ProbersVariable, Value: string(text)})
	return err
}

// moveProbes makes the kubelet probe the agent, and adds the original probes to moved, by path.
func (r *request) moveProbes(pod *corev1.Pod, moved map[string]*prober) error {
	rewrite, err := r.rewrites(pod)
	if err != nil || !rewrite {
		return err
	}
	eachHandler(pod, func(c *corev1.Container, h handler) {
		if h.atStart && r.precedes(pod, c) {
			return
		}
		if p := r.moveProbe(c, h); p != nil {
			moved[(*h.http).Path] = p
		}
	})
	return nil
}

// rewrites reports whether the agent makes a Pod's probes.
func (r *request) rewrites(pod *corev1.Pod) (bool, error) {
	if v, ok := pod.Annotations[annotationRewrite]; ok {
		return parseBool(annotationRewrite, v)
	}
	return r.RewriteProbes, nil
}

// precedes reports whether a container must have started before the sidecar starts: an init container before a classic sidecar. No rules
// lead its connections to Envoy then, unless a CNI plugin sets them.
func (r *request) precedes(pod *corev1.Pod, c *corev1.Container) bool {
	return !r.native && find(pod.Spec.InitContainers, c.Name) == c
}

// needsAgentAtStart reports whether a container of the application has a postStart hook that the agent makes. The kubelet starts the
// next container after the hook, so that the sidecar must be the first one.
func (r *request) needsAgentAtStart() (bool, error) {
	rewrite, err := r.rewrites(r.pod)
	if err != nil || !rewrite || r.native {
		return false, err
	}
	return slices.ContainsFunc(r.pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name != proxyContainer && c.Lifecycle != nil && c.Lifecycle.PostStart != nil &&
			(c.Lifecycle.PostStart.HTTPGet != nil || c.Lifecycle.PostStart.TCPSocket != nil)
	}), nil
}

// moveProbe changes one handler to the agent. It returns nil if the handler stays: it is a command, its port is a name
// that the container does not have, or it already probes the agent.
func (r *request) moveProbe(c *corev1.Container, h handler) *prober {
	p := &prober{HTTPGet: *h.http, TCPSocket: *h.tcp, TimeoutSeconds: h.timeout}
	if h.grpc != nil {
		p.GRPC = *h.grpc
	}
	to := &corev1.HTTPGetAction{}
	switch {
	case p.HTTPGet != nil:
		to = p.HTTPGet.DeepCopy()
		if !number(c, &p.HTTPGet.Port) || int(p.HTTPGet.Port.IntVal) == r.statusPort {
			return nil
		}
		if to.Scheme == corev1.URISchemeHTTPS {
			to.Scheme = corev1.URISchemeHTTP
		}
		to.Protocol = nil // the agent serves HTTP/1.1
	case p.TCPSocket != nil:
		if !number(c, &p.TCPSocket.Port) || int(p.TCPSocket.Port.IntVal) == r.statusPort {
			return nil
		}
	case p.GRPC == nil:
		return nil
	}
	if h.hook {
		h.path += "/" + r.hookKey()
	}
	to.Path, to.Port = h.path, intstr.FromInt32(int32(r.statusPort))
	*h.http, *h.tcp = to, nil
	if h.grpc != nil {
		*h.grpc = nil
	}
	return p
}

// hookKey returns the end of the paths of the Pod's hooks. Hooks act on the application, and any host can call the agent, so that only
// who may read the Pod, as the kubelet does, knows the paths. Another injection keeps the key.
func (r *request) hookKey() string {
	switch {
	case r.key != "":
	case r.HookKey != nil:
		r.key = r.HookKey()
	default:
		r.key = strings.ToLower(rand.Text())
	}
	return r.key
}

// hookKeyOf returns the key of an earlier injection; empty: there is none.
func hookKeyOf(pod *corev1.Pod) (key string) {
	sidecar := sidecarOf(pod)
	if sidecar == nil {
		return ""
	}
	moved := map[string]*prober{}
	if _, err := fromEnv(sidecar, appprobe.ProbersVariable, &moved); err != nil {
		return ""
	}
	for path := range moved {
		rest, hook := strings.CutPrefix(path, appprobe.LifecyclePrefix)
		if parts := strings.Split(rest, "/"); hook && len(parts) == 3 {
			key = max(key, parts[2]) // all have one
		}
	}
	return key
}

// number replaces a port's name by its number.
func number(c *corev1.Container, port *intstr.IntOrString) bool {
	if port.Type == intstr.Int {
		return true
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			*port = intstr.FromInt32(p.ContainerPort)
			return true
		}
	}
	return false
}

// restoreHandlers restores the handlers that moveHandlers changed.
func restoreHandlers(pod *corev1.Pod, sidecar *corev1.Container) error {
	moved := map[string]*prober{}
	if _, err := fromEnv(sidecar, appprobe.ProbersVariable, &moved); err != nil {
		return err
	}
	releaseContainers(pod, moved)
	eachHandler(pod, func(_ *corev1.Container, h handler) {
		if *h.http == nil || !strings.HasPrefix((*h.http).Path, h.path) {
			return
		}
		p := moved[(*h.http).Path]
		if p == nil {
			return
		}
		*h.http, *h.tcp = p.HTTPGet, p.TCPSocket
		if h.grpc != nil {
			*h.grpc = p.GRPC
		}
	})
	return nil
}

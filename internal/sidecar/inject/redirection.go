package inject

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// Redirection is what an injected Pod says about the rules that a CNI plugin sets for it.
type Redirection struct {
	Redirect bool
	Why      string // why not
	Settings intercept.Settings
}

// RedirectionOf reports whether a CNI plugin redirects a Pod's connections, and how. The rules are those of istio-cni,
// so that Pods which istiod has injected get the same. Errors name the annotation.
func RedirectionOf(pod *corev1.Pod) (Redirection, error) {
	proxy := sidecarOf(pod)
	if why := notRedirected(pod, proxy); why != "" {
		return Redirection{Why: why}, nil
	}
	s := settingsOf(pod, proxy)
	c, err := s.Parse()
	switch {
	case err != nil:
		return Redirection{}, err
	case c.Mode == intercept.ModeNone:
		return Redirection{Why: "its interception mode is NONE"}, nil
	}
	return Redirection{Redirect: true, Settings: s}, nil
}

// notRedirected returns why a Pod gets no rules; "" if it gets some.
func notRedirected(pod *corev1.Pod, proxy *corev1.Container) string {
	switch {
	case find(pod.Spec.InitContainers, initContainer) != nil:
		return "its init container " + initContainer + " sets the rules"
	case proxy == nil:
		return "it has no container " + proxyContainer
	case pod.Spec.HostNetwork:
		return "it uses the host's network"
	case isTrue(envOf(proxy, "DISABLE_ENVOY")):
		return "DISABLE_ENVOY is set for its sidecar"
	case isRouter(proxy):
		return "it is a gateway"
	}
	wanted, where := pod.Annotations[annotationInject], "annotation"
	if v, ok := pod.Labels[labelInject]; ok {
		wanted, where = v, "label"
	}
	if v, err := strconv.ParseBool(wanted); err == nil && !v {
		return fmt.Sprintf("its %s %s is %s", where, labelInject, wanted)
	}
	if _, ok := pod.Annotations[annotationStatus]; !ok {
		return "it has no annotation " + annotationStatus
	}
	return ""
}

func isTrue(text string) bool {
	v, err := strconv.ParseBool(text)
	return err == nil && v
}

// isRouter reports whether a proxy is a gateway, by the arguments of Moonsail's agent or Istio's.
func isRouter(proxy *corev1.Container) bool {
	a := proxy.Args
	return slices.Contains(a, routerFlag) || len(a) >= 2 && a[0] == "proxy" && a[1] != "sidecar" && !strings.HasPrefix(a[1], "-")
}

func envOf(c *corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// settingsOf returns the settings of an injected Pod. Later sources override earlier ones: the sidecar's environment,
// annotations, the sidecar's user, the arguments of istio-validation. The last are complete if Moonsail has injected the
// Pod.
func settingsOf(pod *corev1.Pod, proxy *corev1.Container) intercept.Settings {
	s := intercept.Default()
	rows := intercept.List()
	for i := range rows {
		if v := envOf(proxy, rows[i].Env); rows[i].Env != "" && v != "" {
			*rows[i].Value(&s) = v
		}
	}
	s = s.Annotated(pod.Annotations)
	setUser(&s, proxy.SecurityContext)
	if c := find(pod.Spec.InitContainers, validationContainer); c != nil {
		setArgs(&s, c.Args)
	}
	return s
}

// setUser sets the sidecar's user and group. Root does not identify the sidecar, and with TPROXY it is always root.
func setUser(s *intercept.Settings, c *corev1.SecurityContext) {
	if c == nil {
		return
	}
	if u := c.RunAsUser; u != nil && *u != 0 && s.Mode != intercept.ModeTProxy {
		s.ProxyUID = strconv.FormatInt(*u, 10)
	}
	if g := c.RunAsGroup; g != nil && *g != 0 {
		s.ProxyGID = strconv.FormatInt(*g, 10)
	}
}

// setArgs applies the arguments of istio-validation: those of `moonsail agent intercept`, or the ports in those of
// Istio's istio-iptables.
func setArgs(s *intercept.Settings, args []string) {
	rows := intercept.List()
	for i, a := range args {
		for j := range rows {
			if v, ok := strings.CutPrefix(a, "--"+rows[j].Flag+"="); ok {
				*rows[j].Value(s) = v
			}
		}
		if i+1 < len(args) && args[0] == "istio-iptables" {
			switch a {
			case "-p":
				s.OutboundPort = args[i+1]
			case "-z":
				s.InboundPort = args[i+1]
			}
		}
	}
}

package inject

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The image of the sidecar has no shell and no programs but moonsail and Envoy, so other commands fail in hooks and probes that
// users give to it. The usual one is a sleep before the end, so that load balancers stop using a gateway that still serves.
// Injection does that without a command.

// delaySleeps turns preStop hooks that sleep into hooks of the agent. An ordinary container serves for that time, then drains.
// A native sidecar serves until the application has ended anyway, so it keeps its hook, which starts the drain at once.
func (r *request) delaySleeps(containers, injected []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		if of := find(injected, c.Name); c.Name != proxyContainer || c.Image != "" || of == nil || of.Image != r.image() || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		after, ok := sleepOf(c.Lifecycle.PreStop.Exec)
		switch {
		case !ok:
		case r.native:
			if c.Lifecycle.PreStop = nil; *c.Lifecycle == (corev1.Lifecycle{}) {
				c.Lifecycle = nil
			}
		default:
			c.Lifecycle.PreStop = command("agent", "drain", "--address=127.0.0.1:"+strconv.Itoa(r.statusPort), "--after="+after.String())
		}
	}
}

var (
	shells     = []string{"sh", "bash", "ash", "dash"}
	sleepsOnly = regexp.MustCompile(`^\s*(?:exec\s+)?(?:/usr)?(?:/bin/)?sleep\s+([0-9.]+[smh]?)\s*;?\s*$`)
)

// sleepOf returns how long a command sleeps, which does nothing else. Not ok: it does something else.
func sleepOf(e *corev1.ExecAction) (d time.Duration, ok bool) {
	if e == nil {
		return 0, false
	}
	text := ""
	switch c := e.Command; {
	case len(c) == 2 && path.Base(c[0]) == "sleep":
		text = "sleep " + c[1]
	case len(c) == 3 && slices.Contains(shells, path.Base(c[0])) && c[1] == "-c":
		text = c[2]
	}
	m := sleepsOnly.FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	if last := m[1][len(m[1])-1]; last >= '0' && last <= '9' || last == '.' {
		m[1] += "s"
	}
	d, err := time.ParseDuration(m[1])
	return d, err == nil
}

// FailingCommand is a command of a hook or probe that the image of the sidecar cannot run.
type FailingCommand struct {
	Field   string // of the Pod's spec
	Command []string
}

// Message is why the command fails, and what to use instead.
func (c FailingCommand) Message() string {
	return fmt.Sprintf("command %q fails: the image of the sidecar has no shell and no such program; of commands, a preStop hook that only sleeps is honoured; use httpGet or tcpSocket", c.Command[0])
}

// FailingCommands lists the commands of hooks and probes of a Pod's own container istio-proxy that fail in the image of the
// sidecar.
func FailingCommands(spec *corev1.PodSpec) (out []FailingCommand) {
	for name, list := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i := range list {
			if c := &list[i]; c.Name == proxyContainer && (c.Image == "" || c.Image == autoImage) {
				for field, e := range failingIn(c) {
					out = append(out, FailingCommand{"spec." + name + "[" + strconv.Itoa(i) + "]." + field + ".exec.command", e.Command})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b FailingCommand) int { return strings.Compare(a.Field, b.Field) })
	return out
}

// failingIn returns the failing commands of a container, by field.
func failingIn(c *corev1.Container) map[string]*corev1.ExecAction {
	out := map[string]*corev1.ExecAction{}
	for field, p := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if p != nil {
			out[field] = p.Exec
		}
	}
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		out["lifecycle.postStart"] = c.Lifecycle.PostStart.Exec
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if _, sleeps := sleepOf(c.Lifecycle.PreStop.Exec); !sleeps {
			out["lifecycle.preStop"] = c.Lifecycle.PreStop.Exec
		}
	}
	maps.DeleteFunc(out, func(_ string, e *corev1.ExecAction) bool {
		return e == nil || len(e.Command) == 0 || path.Base(e.Command[0]) == binary
	})
	return out
}

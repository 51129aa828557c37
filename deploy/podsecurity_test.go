package deploy

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// notRestricted are the settings that Pods of the charts need in spite of the Pod Security Standard restricted, by
// Pod and container, and why.
var notRestricted = map[string]string{
	"moonsail-cni-node: seccompProfile is not RuntimeDefault":             "the profile RuntimeDefault of some runtimes forbids setns, with which it repairs Pods; the value seccompProfile sets one",
	"moonsail-cni-node/install-cni: runs as root":                         "the node's folders belong to root",
	"moonsail-cni-node/install-cni: allows escalation":                    "Kubernetes refuses to forbid it beside SYS_ADMIN",
	"moonsail-cni-node/install-cni: has the capability DAC_OVERRIDE":      "folders may belong to others",
	"moonsail-cni-node/install-cni: has the capability NET_ADMIN":         "sets rules in Pods that it repairs",
	"moonsail-cni-node/install-cni: has the capability SYS_ADMIN":         "enters the network namespaces of these Pods",
	"moonsail-cni-node/install-cni: has the capability SYS_PTRACE":        "finds these namespaces",
	"moonsail-cni-node: has the folder /opt/cni/bin of the node":          "the plugin is there",
	"moonsail-cni-node: has the folder /etc/cni/net.d of the node":        "the runtime's configuration is there",
	"moonsail-cni-node: has the folder /var/run/moonsail-cni of the node": "the plugin calls the agent's socket there",
	"moonsail-cni-node: has the folder /proc of the node":                 "network namespaces of Pods that it repairs",
}

// apiClients are the Pods that call the API server. Others have no token for it.
var apiClients = map[string]bool{"moonsail": true, "moonsail-cni-node": true, "moonsail-cni-untaint": true}

// podOf is a workload of a chart with its Pods.
type podOf struct {
	name string
	spec corev1.PodSpec
}

// podsOf reads the workloads of all charts.
func podsOf(t *testing.T, values map[string]map[string]any) []podOf {
	t.Helper()
	var out []podOf
	for _, chart := range allCharts {
		files, err := Release{Name: chart, Chart: chart, Namespace: DefaultNamespace, Values: values[chart]}.Render()
		require.NoError(t, err)
		for _, f := range files {
			docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(f.Text), 4096)
			for {
				var o appsv1.Deployment // the parts that DaemonSets have, too
				err := docs.Decode(&o)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err, "%s/%s", chart, f.Name)
				if o.Kind == "Deployment" || o.Kind == "DaemonSet" {
					out = append(out, podOf{o.Name, o.Spec.Template.Spec})
				}
			}
		}
	}
	return out
}

// departures returns what a Pod has that the standard forbids.
func (p podOf) departures() []string {
	var out []string
	note := func(at, what string) { out = append(out, at+": "+what) }
	pod := p.spec.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	if p.spec.HostNetwork || p.spec.HostPID || p.spec.HostIPC {
		note(p.name, "shares a namespace of the node")
	}
	if pod.SeccompProfile == nil || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		note(p.name, "seccompProfile is not RuntimeDefault")
	}
	if !apiClients[p.name] && (p.spec.AutomountServiceAccountToken == nil || *p.spec.AutomountServiceAccountToken) {
		note(p.name, "has a token for the API server")
	}
	for _, v := range p.spec.Volumes {
		if v.HostPath != nil {
			note(p.name, "has the folder "+v.HostPath.Path+" of the node")
		}
	}
	for i := range p.spec.Containers {
		c := &p.spec.Containers[i]
		at, s := p.name+"/"+c.Name, c.SecurityContext
		if s == nil {
			note(at, "has no securityContext")
			continue
		}
		isTrue := func(b *bool) bool { return b != nil && *b }
		if !isTrue(s.RunAsNonRoot) && (s.RunAsNonRoot != nil || !isTrue(pod.RunAsNonRoot)) {
			note(at, "runs as root")
		}
		if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
			note(at, "allows escalation")
		}
		if !isTrue(s.ReadOnlyRootFilesystem) {
			note(at, "has a root file system that it can write")
		}
		if isTrue(s.Privileged) {
			note(at, "is privileged")
		}
		if s.Capabilities == nil || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
			note(at, "does not drop all capabilities")
			continue
		}
		for _, c := range s.Capabilities.Add {
			note(at, "has the capability "+string(c))
		}
	}
	return out
}

// TestPodsAreRestricted checks that Pods of the charts run without root, capabilities, a writable root file system and a
// token that they do not need, with the seccomp profile RuntimeDefault. notRestricted lists the exceptions.
func TestPodsAreRestricted(t *testing.T) {
	pods := podsOf(t, map[string]map[string]any{CNIChart: {"taint": map[string]any{"enabled": true}}})
	require.Len(t, pods, 4)
	seen := map[string]bool{}
	for _, p := range pods {
		for _, d := range p.departures() {
			seen[d] = true
			require.Contains(t, notRestricted, d, "not needed, or without a reason")
		}
	}
	for d := range notRestricted {
		require.True(t, seen[d], "%s: no Pod has it any more: remove it from the list", d)
	}
}

// TestPodsAreRestrictedAfterChanges checks that departures finds what is wrong.
func TestPodsAreRestrictedAfterChanges(t *testing.T) {
	pods, yes := podsOf(t, nil), true
	for want, change := range map[string]func(*corev1.PodSpec){
		"moonsail: shares a namespace of the node":                     func(s *corev1.PodSpec) { s.HostNetwork = true },
		"moonsail: seccompProfile is not RuntimeDefault":               func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"moonsail/discovery: runs as root":                             func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"moonsail/discovery: is privileged":                            func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Privileged = &yes },
		"moonsail/discovery: has a root file system that it can write": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil },
		"moonsail/discovery: does not drop all capabilities":           func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
		"moonsail/discovery: has no securityContext":                   func(s *corev1.PodSpec) { s.Containers[0].SecurityContext = nil },
		"moonsail/discovery: allows escalation":                        func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = &yes },
		"moonsail: has the folder /etc of the node": func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}
		},
	} {
		t.Run(want, func(t *testing.T) {
			for _, p := range pods {
				if p.name == "moonsail" {
					require.Empty(t, p.departures())
					p.spec = *p.spec.DeepCopy()
					change(&p.spec)
					require.Equal(t, []string{want}, p.departures())
				}
			}
		})
	}
}

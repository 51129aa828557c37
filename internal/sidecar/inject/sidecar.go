package inject

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// sidecar is the built-in template of sidecars.
func (r *request) sidecar() (*corev1.Pod, error) {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: r.labels(), Annotations: r.annotations()}}
	resources, err := r.resources()
	if err != nil {
		return nil, err
	}
	switch {
	case r.settings.Mode == intercept.ModeNone:
	case r.CNI.Enabled:
		out.Spec.InitContainers = append(out.Spec.InitContainers, r.validationContainer(resources))
	default:
		out.Spec.InitContainers = append(out.Spec.InitContainers, r.initContainer(resources))
	}
	proxy, err := r.proxy(resources)
	if err != nil {
		return nil, err
	}
	if r.native {
		out.Spec.InitContainers = append(out.Spec.InitContainers, *proxy)
	} else {
		out.Spec.Containers = append(out.Spec.Containers, *proxy)
	}
	volumes, err := r.volumes()
	out.Spec.Volumes = volumes
	for _, s := range r.ImagePullSecrets {
		out.Spec.ImagePullSecrets = append(out.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return out, err
}

func (r *request) labels() map[string]string {
	l := r.pod.Labels
	name := callstats.CanonicalService(l, cmp.Or(r.owner.Name, r.pod.Name))
	return map[string]string{
		labelTLSMode:           cmp.Or(l[labelTLSMode], "istio"),
		labelCanonicalName:     strings.Trim(name[:min(len(name), 63)], "-_."),
		labelCanonicalRevision: cmp.Or(callstats.CanonicalRevision(l), callstats.Latest),
	}
}

func (r *request) annotations() map[string]string {
	out := map[string]string{model.LabelRevision: cmp.Or(r.Revision, model.DefaultRevision)}
	if r.CNI.Enabled { // istio-cni reads them
		for name, v := range r.intercepting {
			if _, ok := r.pod.Annotations[name]; !ok {
				out[name] = v
			}
		}
		if r.settings.Mode != intercept.ModeRedirect {
			out[annotationMode] = r.settings.Mode
		}
	}
	for _, c := range r.pod.Spec.Containers {
		if c.Name == proxyContainer {
			continue
		}
		for _, a := range []string{annotationContainer, annotationLogs} {
			if r.pod.Annotations[a] == "" {
				out[a] = c.Name
			}
		}
		break
	}
	return out
}

// resources returns the resources in annotations, else those of the configuration.
func (r *request) resources() (corev1.ResourceRequirements, error) {
	var out corev1.ResourceRequirements
	for _, row := range []struct {
		annotation string
		into       *corev1.ResourceList
		name       corev1.ResourceName
	}{
		{annotationCPU, &out.Requests, corev1.ResourceCPU}, {annotationMemory, &out.Requests, corev1.ResourceMemory},
		{annotationCPULimit, &out.Limits, corev1.ResourceCPU}, {annotationMemoryLimit, &out.Limits, corev1.ResourceMemory},
	} {
		text, ok := r.pod.Annotations[row.annotation]
		if !ok {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return out, fmt.Errorf("annotation %s: invalid quantity %q: use forms like 100m or 128Mi", row.annotation, text)
		}
		if *row.into == nil {
			*row.into = corev1.ResourceList{}
		}
		(*row.into)[row.name] = q
	}
	if out.Requests == nil && out.Limits == nil {
		return *r.Resources.DeepCopy(), nil
	}
	return out, nil
}

func (r *request) image() string {
	if i := r.pod.Annotations[annotationImage]; i != "" {
		return i
	}
	kind := cmp.Or(r.pod.Annotations[annotationImageType], r.proxyConfig.GetImage().GetImageType())
	if kind == "" || kind == "default" {
		return r.Image
	}
	return r.Image + "-" + kind
}

// interceptArgs are the arguments with the settings of the rules.
func (r *request) interceptArgs() []string {
	args := []string{"agent", "intercept"}
	defaults := intercept.Default()
	for _, row := range intercept.List() {
		if v := *row.Value(&r.settings); v != *row.Value(&defaults) || row.Flag == "interception-mode" {
			args = append(args, "--"+row.Flag+"="+v)
		}
	}
	return args
}

// validationContainer fails until the rules of a CNI plugin are in force. It has the sidecar's user, whose connections
// istio-cni's rules redirect. The plugin reads the settings from its arguments.
func (r *request) validationContainer(resources corev1.ResourceRequirements) corev1.Container {
	user, group, no, yes := idOf(r.settings.ProxyUID), idOf(r.settings.ProxyGID), false, true
	return corev1.Container{
		Name: validationContainer, Image: r.image(), ImagePullPolicy: r.ImagePullPolicy, Args: append(r.interceptArgs(), "--check"),
		Env: r.metadataEnv(), Resources: resources,
		SecurityContext: &corev1.SecurityContext{
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			AllowPrivilegeEscalation: &no, Privileged: &no, ReadOnlyRootFilesystem: &yes,
			RunAsUser: &user, RunAsGroup: &group, RunAsNonRoot: &yes, SeccompProfile: r.seccomp(),
		},
	}
}

// idOf returns the user or group of settings that name one; else the default.
func idOf(text string) int64 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return proxyID
	}
	return int64(n)
}

// seccomp is the profile that the Pod Security Standard restricted requires. Pods that are not meant to pass it keep the
// profile of their node.
func (r *request) seccomp() *corev1.SeccompProfile {
	if !r.CNI.Enabled {
		return nil
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

// initContainer sets the rules of interception and ends.
func (r *request) initContainer(resources corev1.ResourceRequirements) corev1.Container {
	root, no, yes := int64(0), false, true
	return corev1.Container{
		Name: initContainer, Image: r.image(), ImagePullPolicy: r.ImagePullPolicy, Args: r.interceptArgs(), Env: append([]corev1.EnvVar{podIPs()}, r.metadataEnv()...), Resources: resources,
		SecurityContext: &corev1.SecurityContext{
			Capabilities:             &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}, Drop: []corev1.Capability{"ALL"}},
			AllowPrivilegeEscalation: &no, Privileged: &no, ReadOnlyRootFilesystem: &yes,
			RunAsUser: &root, RunAsGroup: &root, RunAsNonRoot: &no,
		},
	}
}

// proxy returns the sidecar's container.
func (r *request) proxy(resources corev1.ResourceRequirements) (*corev1.Container, error) {
	mounts, err := r.mounts()
	if err != nil {
		return nil, err
	}
	env, err := r.env()
	if err != nil {
		return nil, err
	}
	probe, err := r.readiness()
	if err != nil {
		return nil, err
	}
	c := &corev1.Container{
		Name: proxyContainer, Image: r.image(), ImagePullPolicy: r.ImagePullPolicy, Args: r.args(), Env: env,
		Ports:     []corev1.ContainerPort{{Name: "http-envoy-prom", ContainerPort: prometheusPort, Protocol: corev1.ProtocolTCP}},
		Resources: resources, VolumeMounts: mounts, ReadinessProbe: probe, SecurityContext: r.security(),
	}
	if r.native || probe != nil && !r.router {
		// Containers after a native sidecar start when this probe succeeds. For any sidecar, the kubelet then asks for
		// readiness at once, not a period later.
		c.StartupProbe = &corev1.Probe{
			ProbeHandler: ready(), PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: 600,
		}
	}
	if r.native {
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		c.Lifecycle = &corev1.Lifecycle{PreStop: command("agent", "drain", "--address=127.0.0.1:"+strconv.Itoa(r.statusPort))}
	} else if r.hold {
		c.Lifecycle = &corev1.Lifecycle{PostStart: command("agent", "wait")}
	}
	return c, nil
}

func command(args ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: append([]string{binary}, args...)}}
}

func ready() corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz/ready", Port: intstr.FromInt32(healthPort)}}
}

// readiness returns the readiness probe of the sidecar. Port 0 disables it, as in Istio.
func (r *request) readiness() (*corev1.Probe, error) {
	if r.pod.Annotations[annotationStatusPort] == "0" {
		return nil, nil
	}
	p := &corev1.Probe{ProbeHandler: ready(), TimeoutSeconds: 3, PeriodSeconds: 15, FailureThreshold: 4}
	for annotation, into := range map[string]*int32{
		annotationInitialDelay: &p.InitialDelaySeconds, annotationPeriod: &p.PeriodSeconds, annotationFailures: &p.FailureThreshold,
	} {
		text, ok := r.pod.Annotations[annotation]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("annotation %s: invalid number %q", annotation, text)
		}
		*into = int32(n)
	}
	return p, nil
}

// security sets the security context. TPROXY needs root. The group identifies the sidecar's connections.
func (r *request) security() *corev1.SecurityContext {
	user, group, no, yes := int64(proxyID), int64(proxyID), false, true
	s := &corev1.SecurityContext{
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		AllowPrivilegeEscalation: &no, Privileged: &no, ReadOnlyRootFilesystem: &yes,
		RunAsUser: &user, RunAsGroup: &group, RunAsNonRoot: &yes, SeccompProfile: r.seccomp(),
	}
	if r.settings.Mode == intercept.ModeTProxy {
		user = 0
		s.RunAsNonRoot = &no
		s.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}
	return s
}

func (r *request) args() []string {
	args := []string{"agent", "--xds-address=" + cmp.Or(r.proxyConfig.GetDiscoveryAddress(), r.XDSAddress), "--xds-plaintext=" + strconv.FormatBool(r.XDSPlaintext),
		"--domain=" + r.Domain, "--work-dir=" + workDir, "--wasm-cache-dir=" + dataDir + "/wasm", "--pod-info=" + podInfoDir}
	if n := r.configs.selecting.GetConcurrency(); n != nil { // a flag, because the annotation, which the agent reads, has lower precedence
		args = append(args, "--concurrency="+strconv.Itoa(int(n.Value)))
	}
	if r.statusPort != defaultStatus {
		args = append(args, "--status-port="+strconv.Itoa(r.statusPort))
	}
	if level := r.pod.Annotations[annotationAgentLogLevel]; level != "" {
		args = append(args, "--log-level="+agentLevel(level))
	}
	return args
}

// agentLevel returns the agent's log level for one of Istio's, such as "default:debug" or "warning".
func agentLevel(text string) string {
	level := text
	for part := range strings.SplitSeq(text, ",") {
		if scope, l, ok := strings.Cut(part, ":"); ok && (scope == "default" || scope == "all") {
			level = l
		}
	}
	switch level {
	case "debug", "error", "info":
		return level
	case "warning", "warn":
		return "warn"
	case "none", "fatal":
		return "error"
	}
	return "info"
}

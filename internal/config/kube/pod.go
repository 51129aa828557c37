package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Pod decodes a Pod.
func Pod(in convert.Cluster, o *corev1.Pod) (*model.Workload, problem.List) {
	c := start(in, model.KindPod, &o.ObjectMeta)
	w := &model.Workload{
		Meta:           c.Meta,
		Addresses:      c.podIPs(o),
		Owner:          podOwner(o),
		ServiceAccount: o.Spec.ServiceAccountName,
		Node:           o.Spec.NodeName,
		Locality:       c.LabelLocality("metadata.labels", o.Labels),
		Network:        o.Labels[model.LabelNetwork],
		NamedPorts:     c.containerPorts(&o.Spec),
		Interception:   model.Interception(o.Annotations[model.AnnotationInterception]),
		HostNetwork:    o.Spec.HostNetwork,
		Ready:          podReady(o),
		Terminating:    o.DeletionTimestamp != nil || podDone(o),
	}
	if w.ServiceAccount == "" {
		w.ServiceAccount = "default"
	}
	if text, ok := o.Annotations[istio.AnnotationProxyConfig]; ok {
		istio.CheckProxyConfig(c.Converter, problem.Path("metadata.annotations").Key(istio.AnnotationProxyConfig), text)
	}
	return w, c.Problems
}

// Node decodes a Node.
func Node(in convert.Cluster, o *corev1.Node) (*model.Node, problem.List) {
	c := start(in, model.KindNode, &o.ObjectMeta)
	return &model.Node{Meta: c.Meta, Locality: c.LabelLocality("metadata.labels", o.Labels)}, c.Problems
}

func (c *conv) podIPs(o *corev1.Pod) []string {
	var out []string
	for i, ip := range o.Status.PodIPs {
		if !model.IsIP(ip.IP) {
			c.Errorf(code.InvalidFormat, problem.Path("status.podIPs").Index(i).Field("ip"), "%q is not an IP address", ip.IP)
		}
		out = append(out, ip.IP)
	}
	if len(out) == 0 && o.Status.PodIP != "" {
		if !model.IsIP(o.Status.PodIP) {
			c.Errorf(code.InvalidFormat, "status.podIP", "%q is not an IP address", o.Status.PodIP)
		}
		out = append(out, o.Status.PodIP)
	}
	return out
}

// containerPorts collects named TCP ports, of init containers that keep running too.
func (c *conv) containerPorts(spec *corev1.PodSpec) map[string]uint32 {
	out := map[string]uint32{}
	c.addPorts(out, "spec.containers", spec.Containers)
	for i := range spec.InitContainers {
		if p := spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			c.addPorts(out, "spec.initContainers", spec.InitContainers[i:i+1])
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (c *conv) addPorts(out map[string]uint32, at problem.Path, containers []corev1.Container) {
	for i := range containers {
		for j, p := range containers[i].Ports {
			if !c.CheckPort(at.Index(i).Field("ports").Index(j).Field("containerPort"), uint32(max(p.ContainerPort, 0))) {
				continue
			}
			if p.Name == "" || p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
				continue
			}
			if _, taken := out[p.Name]; !taken {
				out[p.Name] = uint32(p.ContainerPort)
			}
		}
	}
}

// podReady goes by the Ready condition. A pod written by hand, without conditions,
// is ready unless its phase contradicts that.
func podReady(o *corev1.Pod) bool {
	for _, cond := range o.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return o.Status.Phase == "" || o.Status.Phase == corev1.PodRunning
}

func podDone(o *corev1.Pod) bool {
	return o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
}

// podOwner is the name of what made a Pod: of a ReplicaSet's its Deployment, whose name the
// ReplicaSet's extends by the hash of the Pod's template.
func podOwner(o *corev1.Pod) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return ""
	}
	if hash := o.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
		return strings.TrimSuffix(owner.Name, "-"+hash)
	}
	return owner.Name
}

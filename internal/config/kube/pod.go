package kube

import (
	"iter"

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
		NamedPorts:     namedPorts(&o.Spec),
		Interception:   model.Interception(o.Annotations[model.AnnotationInterception]),
		HostNetwork:    o.Spec.HostNetwork,
		Ready:          podReady(o),
		Terminating:    o.DeletionTimestamp != nil || podDone(o),
	}
	c.checkContainerPorts(&o.Spec)
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

// LastingContainers returns the containers that run as long as a Pod, with their fields: also init containers that keep running.
func LastingContainers(spec *corev1.PodSpec) iter.Seq2[problem.Path, *corev1.Container] {
	return func(yield func(problem.Path, *corev1.Container) bool) {
		for i := range spec.Containers {
			if !yield(problem.Path("spec.containers").Index(i), &spec.Containers[i]) {
				return
			}
		}
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !yield(problem.Path("spec.initContainers").Index(i), c) {
				return
			}
		}
	}
}

func (c *conv) checkContainerPorts(spec *corev1.PodSpec) {
	for at, container := range LastingContainers(spec) {
		for i, p := range container.Ports {
			c.CheckPort(at.Field("ports").Index(i).Field("containerPort"), uint32(max(p.ContainerPort, 0)))
		}
	}
}

// namedPorts returns the TCP ports of a Pod by name. As for targetPort in Kubernetes, the first container with a name decides.
func namedPorts(spec *corev1.PodSpec) map[string]uint32 {
	var out map[string]uint32
	for _, c := range LastingContainers(spec) {
		for _, p := range c.Ports {
			switch {
			case p.Name == "" || p.Protocol != "" && p.Protocol != corev1.ProtocolTCP:
			case p.ContainerPort < 1 || p.ContainerPort > 65535 || out[p.Name] != 0:
			case out == nil:
				out = map[string]uint32{p.Name: uint32(p.ContainerPort)}
			default:
				out[p.Name] = uint32(p.ContainerPort)
			}
		}
	}
	return out
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

// podOwner is the name of the workload that a Pod belongs to; empty: the Pod has no owner.
func podOwner(o *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return ""
	}
	return model.Owner{Kind: owner.Kind, Name: owner.Name}.Workload(o.Labels).Name
}

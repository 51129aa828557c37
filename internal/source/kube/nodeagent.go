package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// NodeAgent is what a CNI plugin's node agent does at the API server.
type NodeAgent struct {
	Node      string // whose Pods it reads
	Namespace string // of the agent
	DaemonSet string // of the agent
	Record    func(error)

	Copy[corev1.Pod, *corev1.Pod] // of the Pods of the node

	client *Client
	core   rest.Interface
	sets   *API[appsv1.DaemonSet, *appsv1.DaemonSet]
}

// Connect prepares requests.
func (a *NodeAgent) Connect(c *Client) error {
	var err error
	a.client = c
	if a.core, err = c.restOf(corev1.SchemeGroupVersion, corev1.AddToScheme); err != nil {
		return err
	}
	a.sets, err = NewAPI[appsv1.DaemonSet](c, appsv1.SchemeGroupVersion.WithResource("daemonsets"), appsv1.AddToScheme)
	return err
}

// Run keeps the copy of the node's Pods until ctx ends.
func (a *NodeAgent) Run(ctx context.Context) error {
	return a.Follow(ctx, a.client, "pods", "", fields.OneTermEqualSelector("spec.nodeName", a.Node).String(), a.Record)
}

// Read reads a Pod from the API server.
func (a *NodeAgent) Read(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return do[corev1.Pod](ctx, a.core.Get().Namespace(namespace).Resource("pods").Name(name))
}

// Delete deletes a Pod, unless it has changed.
func (a *NodeAgent) Delete(ctx context.Context, pod *corev1.Pod) error {
	return a.core.Delete().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}}).Do(ctx).Error()
}

// Label sets a label of a Pod. It writes the status, which needs fewer rights than the whole Pod.
func (a *NodeAgent) Label(ctx context.Context, pod *corev1.Pod, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{key: value}}})
	if err != nil {
		return err
	}
	return a.core.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
		Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
}

// Event writes an event about a Pod.
func (a *NodeAgent) Event(ctx context.Context, pod *corev1.Pod, kind, reason, message string) error {
	now := metav1.NewTime(time.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("%s.%x", pod.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Type: kind, Reason: reason, Message: message, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "moonsail-cni", Host: a.Node}, ReportingController: "moonsail-cni", ReportingInstance: a.Node,
	}
	return a.core.Post().Namespace(pod.Namespace).Resource("events").Param("fieldManager", fieldManager).Body(event).Do(ctx).Error()
}

// Own returns the agent's DaemonSet.
func (a *NodeAgent) Own(ctx context.Context) (*appsv1.DaemonSet, error) {
	return a.sets.Get(ctx, a.Namespace, a.DaemonSet)
}

// OwnNode returns the agent's node.
func (a *NodeAgent) OwnNode(ctx context.Context) (*corev1.Node, error) {
	return do[corev1.Node](ctx, a.core.Get().Resource("nodes").Name(a.Node))
}

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// TaintedNodes is what the controller of taints does at the API server.
type TaintedNodes struct {
	Client    *Client
	Namespace string // of the node agents
	Record    func(error)
	Changed   chan struct{} // receives after changes; its capacity is 1

	mu    sync.Mutex // guards calls of Record
	nodes Copy[corev1.Node, *corev1.Node]
	pods  Copy[corev1.Pod, *corev1.Pod]
}

// Run keeps copies of all Nodes and of the node agents' Pods, until ctx ends.
func (t *TaintedNodes) Run(ctx context.Context) error {
	t.nodes.Changed = func(*corev1.Node) { t.wake() }
	t.pods.Changed = func(*corev1.Pod) { t.wake() }
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = t.nodes.Follow(ctx, t.Client, "nodes", "", "", t.record) })
	err := t.pods.Follow(ctx, t.Client, "pods", t.Namespace, "", t.record)
	running.Wait()
	return errors.Join(err, failed)
}

func (t *TaintedNodes) record(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Record(err)
}

func (t *TaintedNodes) wake() {
	select {
	case t.Changed <- struct{}{}:
	default:
	}
}

// Nodes returns all Nodes.
func (t *TaintedNodes) Nodes() []*corev1.Node { return t.nodes.All() }

// Pods returns the Pods in the namespace of the node agents.
func (t *TaintedNodes) Pods() []*corev1.Pod { return t.pods.All() }

// SetTaints replaces a Node's taints, unless they have changed.
func (t *TaintedNodes) SetTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	core, err := t.Client.restOf(corev1.SchemeGroupVersion, scheme)
	if err != nil {
		return err
	}
	type operation struct {
		Op    string         `json:"op"`
		Path  string         `json:"path"`
		Value []corev1.Taint `json:"value"`
	}
	patch, err := json.Marshal([]operation{{"test", "/spec/taints", node.Spec.Taints}, {"replace", "/spec/taints", taints}})
	if err != nil {
		return err
	}
	return core.Patch(types.JSONPatchType).Resource("nodes").Name(node.Name).Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
}

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TaintedNodes is what the controller of taints does at the API server. Call Connect before Run.
type TaintedNodes struct {
	Namespace string // of the node agents
	Record    func(error)
	Changed   chan struct{} // receives after changes; its capacity is 1

	client *Client
	core   rest.Interface

	mu    sync.Mutex // guards calls of Record
	nodes Copy[corev1.Node, *corev1.Node]
	pods  Copy[corev1.Pod, *corev1.Pod]
}

// Connect prepares requests.
func (t *TaintedNodes) Connect(c *Client) (err error) {
	t.client = c
	t.core, err = c.restOf(corev1.SchemeGroupVersion, corev1.AddToScheme)
	return err
}

// Run keeps copies of all Nodes and of the node agents' Pods, until ctx ends.
func (t *TaintedNodes) Run(ctx context.Context) error {
	t.nodes.Changed = func(*corev1.Node) { t.wake() }
	t.pods.Changed = func(*corev1.Pod) { t.wake() }
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = t.nodes.Follow(ctx, t.client, "nodes", "", "", t.record) })
	err := t.pods.Follow(ctx, t.client, "pods", t.Namespace, "", t.record)
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
	type operation struct {
		Op    string         `json:"op"`
		Path  string         `json:"path"`
		Value []corev1.Taint `json:"value"`
	}
	patch, err := json.Marshal([]operation{{"test", "/spec/taints", node.Spec.Taints}, {"replace", "/spec/taints", taints}})
	if err != nil {
		return err
	}
	return t.core.Patch(types.JSONPatchType).Resource("nodes").Name(node.Name).Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
}

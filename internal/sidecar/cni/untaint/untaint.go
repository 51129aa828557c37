// Package untaint removes a taint from nodes whose node agent is ready, as istiod's untaint controller does. The tool that adds
// nodes to the cluster must taint them, so that no Pod starts before its connections can be redirected.
//
// It runs apart from the control plane and from the node agents: nothing else of the mesh may write nodes.
package untaint

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// DefaultTaint is the key of the taint, as in Istio.
const DefaultTaint = "cni.istio.io/not-ready"

// Cluster is the access to the API server.
type Cluster interface {
	Nodes() []*corev1.Node
	Pods() []*corev1.Pod // in the namespace of the node agents
	SetTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error
}

// Controller removes the taint. Its fields are set before Run.
type Controller struct {
	Cluster Cluster
	Taint   string            // key
	Agents  map[string]string // labels of the node agents' Pods
	Changed <-chan struct{}   // receives after changes of nodes and Pods
	Log     *slog.Logger
}

// again is the wait after a failed write.
const again = time.Second

// Run removes taints until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for {
		var retry <-chan time.Time
		if !c.reconcile(ctx) {
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Changed:
		case <-retry:
		}
	}
}

// reconcile removes the taint from all nodes whose agent is ready. It returns false if a write failed.
func (c *Controller) reconcile(ctx context.Context) bool {
	good := true
	for _, node := range c.ready() {
		left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), c.ours)
		if err := c.Cluster.SetTaints(ctx, node, left); err != nil {
			good = false
			c.Log.Warn("the taint of a node was not removed; the write is repeated", "node", node.Name, "taint", c.Taint, "error", err)
			continue
		}
		c.Log.Info("removed the taint of a node: its agent is ready", "node", node.Name, "taint", c.Taint)
	}
	return good
}

func (c *Controller) ours(t corev1.Taint) bool { return t.Key == c.Taint }

// ready returns the nodes that have the taint and a ready agent.
func (c *Controller) ready() []*corev1.Node {
	agents := map[string]bool{} // by node
	for _, p := range c.Cluster.Pods() {
		if c.isAgent(p) && isReady(p) {
			agents[p.Spec.NodeName] = true
		}
	}
	return slices.DeleteFunc(c.Cluster.Nodes(), func(n *corev1.Node) bool {
		return !agents[n.Name] || !slices.ContainsFunc(n.Spec.Taints, c.ours)
	})
}

func (c *Controller) isAgent(p *corev1.Pod) bool {
	for k, v := range c.Agents {
		if p.Labels[k] != v {
			return false
		}
	}
	return p.DeletionTimestamp == nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

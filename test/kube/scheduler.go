package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// scheduler assigns pods to nodes in turn, among those that match the pod's nodeSelector and are not cordoned. It
// supports nothing else: no affinity, no taints, no resources.
type scheduler struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	turn   atomic.Uint64
}

// bind assigns a pod to a node.
func (s *scheduler) bind(ctx context.Context, pod *v1.Pod) error {
	node, err := s.choose(pod)
	if err != nil {
		return err
	}
	err = s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // it has a node, or is gone; an event reports it
	}
	return err
}

func (s *scheduler) choose(pod *v1.Pod) (string, error) {
	nodes, err := s.nodes.List(labels.SelectorFromSet(pod.Spec.NodeSelector))
	if err != nil {
		return "", err
	}
	nodes = slices.DeleteFunc(nodes, func(n *v1.Node) bool { return n.Spec.Unschedulable })
	if len(nodes) == 0 {
		return "", fmt.Errorf("no node is free and has the labels %v", pod.Spec.NodeSelector)
	}
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes[s.turn.Add(1)%uint64(len(nodes))].Name, nil
}

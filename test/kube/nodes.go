package main

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// zones is how many zones the nodes are spread over, in turn.
const zones = 3

// makeNodes creates nodes node-1, node-2 and so on, ready, in one region and three zones. Existing nodes stay as they
// are, so that a user's labels last.
func makeNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	for i := 1; i <= count; i++ {
		n, err := client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("make node %d: %w", i, err)
		}
		n.Status = nodeStatus(i)
		if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("make node %d ready: %w", i, err)
		}
	}
	return nil
}

func node(i int) *v1.Node {
	name := fmt.Sprintf("node-%d", i)
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1.LabelHostname:       name,
		v1.LabelOSStable:       "linux",
		v1.LabelArchStable:     "amd64",
		v1.LabelTopologyRegion: "region-1",
		v1.LabelTopologyZone:   fmt.Sprintf("zone-%d", (i-1)%zones+1),
	}}}
}

func nodeStatus(i int) v1.NodeStatus {
	room := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse("1000"),
		v1.ResourceMemory: resource.MustParse("1Ti"),
		v1.ResourcePods:   resource.MustParse("100000"),
	}
	now := metav1.Now()
	return v1.NodeStatus{
		Capacity:    room,
		Allocatable: room,
		Addresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: nodeIP(i)},
			{Type: v1.NodeHostName, Address: fmt.Sprintf("node-%d", i)},
		},
		Conditions: []v1.NodeCondition{{
			Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		NodeInfo: v1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.3"},
	}
}

// nodeIP is an address of the range that RFC 2544 sets aside for benchmarks.
func nodeIP(i int) string { return fmt.Sprintf("198.18.%d.%d", i/250, i%250+1) }

// addressOf returns the address of a node; "": the node is unknown.
func addressOf(n *v1.Node) string {
	if n != nil {
		for _, a := range n.Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				return a.Address
			}
		}
	}
	return ""
}

package untaint

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster has nodes and Pods. Its first write fails if it should.
type cluster struct {
	mu    sync.Mutex
	nodes map[string]*corev1.Node
	pods  []*corev1.Pod
	fails bool
}

func (c *cluster) Nodes() []*corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*corev1.Node
	for _, n := range c.nodes {
		out = append(out, n)
	}
	return out
}

func (c *cluster) Pods() []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods
}

func (c *cluster) SetTaints(_ context.Context, node *corev1.Node, taints []corev1.Taint) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails {
		c.fails = false
		return errors.New("conflict")
	}
	now := node.DeepCopy()
	now.Spec.Taints = taints
	c.nodes[node.Name] = now
	return nil
}

func (c *cluster) taints(node string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []string{}
	for _, t := range c.nodes[node].Spec.Taints {
		out = append(out, t.Key)
	}
	return out
}

func tainted(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.Taints = []corev1.Taint{
		{Key: DefaultTaint, Effect: corev1.TaintEffectNoSchedule}, {Key: "other"}, {Key: DefaultTaint, Effect: corev1.TaintEffectNoExecute},
	}
	return n
}

func agent(node string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node, Labels: map[string]string{"k8s-app": "cni"}}}
	p.Spec.NodeName = node
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	change(p)
	return p
}

// TestTaints checks that exactly the nodes with a ready agent lose the taint, and no other taint.
func TestTaints(t *testing.T) {
	c := &cluster{fails: true, nodes: map[string]*corev1.Node{}}
	for _, n := range []string{"ready", "starting", "ending", "another", "none"} {
		c.nodes[n] = tainted(n)
	}
	c.pods = []*corev1.Pod{
		agent("ready", func(*corev1.Pod) {}),
		agent("starting", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }),
		agent("ending", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
		agent("another", func(p *corev1.Pod) { p.Labels = nil }),
	}
	changed := make(chan struct{}, 1)
	k := &Controller{Cluster: c, Taint: DefaultTaint, Agents: map[string]string{"k8s-app": "cni"}, Changed: changed, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	require.Eventually(t, func() bool { return len(c.taints("ready")) == 1 }, time.Minute, time.Millisecond)
	for _, n := range []string{"starting", "ending", "another", "none"} {
		require.Equal(t, []string{DefaultTaint, "other", DefaultTaint}, c.taints(n), n)
	}
	require.Equal(t, []string{"other"}, c.taints("ready"))

	c.mu.Lock()
	c.pods = []*corev1.Pod{agent("starting", func(*corev1.Pod) {})}
	c.mu.Unlock()
	changed <- struct{}{}
	require.Eventually(t, func() bool { return len(c.taints("starting")) == 1 }, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

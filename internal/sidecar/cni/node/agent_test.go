//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/cni/install"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that succeed. No test waits for it to end.
const patience = time.Minute

var pods = schema.GroupResource{Resource: "pods"}

// cluster is an API server with a few Pods. It records what is done to them.
type cluster struct {
	copied, stored map[string]*corev1.Pod
	own            error // of reading the DaemonSet; nil: it is there
	set            appsv1.DaemonSet
	node           *corev1.Node // nil: it cannot be read
	fails          error        // of all writes

	mu   sync.Mutex
	acts []string
}

func (c *cluster) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (c *cluster) Get(namespace, name string) *corev1.Pod { return c.copied[namespace+"/"+name] }

func (c *cluster) Read(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	c.note("read " + name)
	if c.fails != nil {
		return nil, c.fails
	}
	if p := c.stored[namespace+"/"+name]; p != nil {
		return p, nil
	}
	return nil, apierrors.NewNotFound(pods, name)
}

func (c *cluster) note(act string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acts = append(c.acts, act)
}

func (c *cluster) did() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.acts...)
}

func (c *cluster) Delete(_ context.Context, pod *corev1.Pod) error {
	c.note("delete " + pod.Name)
	return c.fails
}

func (c *cluster) Label(_ context.Context, pod *corev1.Pod, key, value string) error {
	c.note("label " + pod.Name + " " + key + "=" + value)
	return c.fails
}

func (c *cluster) Event(_ context.Context, pod *corev1.Pod, _, reason, _ string) error {
	c.note("event " + pod.Name + " " + reason)
	return nil
}

func (c *cluster) Own(context.Context) (*appsv1.DaemonSet, error) { return &c.set, c.own }

func (c *cluster) OwnNode(context.Context) (*corev1.Node, error) {
	if c.node == nil {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", nil)
	}
	return c.node, nil
}

// newAgent returns an agent on a node with one network.
func newAgent(t *testing.T, c *cluster) *Agent {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"net.d", "bin"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o750))
	}
	for file, text := range map[string]string{"plugin": "program", "net.d/10-net.conflist": `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"}]}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	a := &Agent{
		Cluster: c, Socket: filepath.Join(dir, "run", "agent.sock"), HTTP: "127.0.0.1:0", Log: log,
		Repair: Repair{Way: RepairRules, Label: "broken=true", Proc: "/proc"},
		Installer: &install.Installer{
			NetDir: filepath.Join(dir, "net.d"), BinDir: filepath.Join(dir, "bin"), Program: filepath.Join(dir, "plugin"), Log: log,
			Entry: cni.Entry{Type: cni.PluginName, ExcludeNamespaces: []string{"kube-system"}},
		},
	}
	a.Prepare()
	return a
}

// injected returns a Pod with a sidecar that needs a CNI plugin.
func injected(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	c, err := inject.Load([]byte("cni: {enabled: true}"))
	require.NoError(t, err)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	p, err = c.Inject(p, inject.OwnerOf(p))
	require.NoError(t, err)
	return p
}

// TestAnswers checks which Pods are redirected, where they are read, and that a doubt is a problem, not a no.
func TestAnswers(t *testing.T) {
	cart, plain := injected(t, "cart"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain", UID: "uid-plain"}}
	wrong := injected(t, "wrong")
	wrong.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "x"
	static := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "static", UID: "other", Annotations: map[string]string{staticHash: "hash"}}}
	stored := map[string]*corev1.Pod{"shop/cart": cart, "shop/plain": plain, "shop/wrong": wrong, "shop/static": static}
	for name, tc := range map[string]struct {
		pod      cni.Pod
		copied   bool
		fails    error
		redirect bool
		reads    bool
		problem  string
		invalid  bool
	}{
		"with a sidecar":           {pod: cni.Pod{Namespace: "shop", Name: "cart", UID: "uid-cart"}, copied: true, redirect: true},
		"not copied yet":           {pod: cni.Pod{Namespace: "shop", Name: "cart", UID: "uid-cart"}, redirect: true, reads: true},
		"the runtime knows no UID": {pod: cni.Pod{Namespace: "shop", Name: "cart"}, copied: true, redirect: true, reads: true},
		"an earlier Pod's copy":    {pod: cni.Pod{Namespace: "shop", Name: "cart", UID: "new"}, copied: true, reads: true, problem: "another Pod of this name"},
		"without a sidecar":        {pod: cni.Pod{Namespace: "shop", Name: "plain", UID: "uid-plain"}, copied: true},
		"static":                   {pod: cni.Pod{Namespace: "shop", Name: "static", UID: "hash"}, copied: true},
		"unknown":                  {pod: cni.Pod{Namespace: "shop", Name: "none", UID: "u"}, reads: true, problem: "does not know the Pod"},
		"no API server":            {pod: cni.Pod{Namespace: "shop", Name: "cart", UID: "uid-cart"}, fails: errors.New("no route"), reads: true, problem: "no route"},
		"invalid annotation":       {pod: cni.Pod{Namespace: "shop", Name: "wrong", UID: "uid-wrong"}, copied: true, problem: "excludeInboundPorts", invalid: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{stored: stored, fails: tc.fails}
			if tc.copied {
				c.copied = stored
			}
			got := newAgent(t, c).answer(t.Context(), tc.pod)
			require.Equal(t, tc.redirect, got.Redirect)
			require.Equal(t, tc.reads, len(c.did()) > 0)
			require.Equal(t, tc.invalid, got.Invalid)
			if tc.problem == "" {
				require.Empty(t, got.Problem)
			} else {
				require.Contains(t, got.Problem, tc.problem)
			}
		})
	}
}

// TestLife checks an agent from its start to its end: it installs, answers, becomes ready, and removes the plugin only
// if its DaemonSet was removed, or does not select the node any more.
func TestLife(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"mesh": "false"}}}
	selects := func(mesh string) (set appsv1.DaemonSet) {
		set.Spec.Template.Spec.NodeSelector = map[string]string{"mesh": mesh}
		return set
	}
	for name, tc := range map[string]struct {
		own   error
		set   appsv1.DaemonSet
		node  *corev1.Node
		stays bool
	}{
		"upgrade":                     {node: node, set: selects("false"), stays: true},
		"node not selected any more":  {node: node, set: selects("true")},
		"no right to read the node":   {set: selects("true"), stays: true},
		"API server away":             {own: apierrors.NewServiceUnavailable("starts"), stays: true},
		"DaemonSet removed":           {own: apierrors.NewNotFound(schema.GroupResource{Resource: "daemonsets"}, "n")},
		"rights removed":              {own: apierrors.NewForbidden(schema.GroupResource{Resource: "daemonsets"}, "n", nil)},
		"service account removed too": {own: apierrors.NewUnauthorized("who")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cart := injected(t, "cart")
			a := newAgent(t, &cluster{own: tc.own, set: tc.set, node: tc.node, copied: map[string]*corev1.Pod{"shop/cart": cart}})
			a.HTTP = freeAddress(t)
			require.NoError(t, os.MkdirAll(filepath.Dir(a.Socket), 0o700))
			stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.Socket, Net: "unix"})
			require.NoError(t, err)
			stale.SetUnlinkOnClose(false)
			require.NoError(t, stale.Close())

			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			require.Eventually(t, func() bool { return page(a.HTTP, "/ready") == "200 ready\n" }, patience, 10*time.Millisecond)
			call, err := cni.Ask(ctx, a.Socket, cni.Question{Pod: cni.Pod{Namespace: "shop", Name: "cart", UID: "uid-cart"}})
			require.NoError(t, err)
			require.True(t, call.Answer.Redirect)
			require.NoError(t, call.Report(cni.Result{Backend: "nftables"}))
			require.Eventually(t, func() bool { return testutil.ToFloat64(a.metrics.pods.WithLabelValues("redirected")) == 1 }, patience, time.Millisecond)
			call.Close()
			metrics := page(a.HTTP, "/metrics")
			for _, line := range []string{"istio_cni_install_ready 1", `istio_cni_installs_total{result="SUCCESS"}`, `moonsail_cni_pods_total{result="redirected"} 1`} {
				require.Contains(t, metrics, line)
			}
			stop()
			require.NoError(t, <-done)
			text, err := os.ReadFile(filepath.Join(a.Installer.NetDir, "10-net.conflist"))
			require.NoError(t, err)
			_, missing := os.Stat(filepath.Join(a.Installer.BinDir, cni.PluginName))
			require.Equal(t, tc.stays, strings.Contains(string(text), cni.PluginName))
			require.Equal(t, tc.stays, missing == nil)
		})
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(nil)
	defer server.Close()
	return server.Listener.Addr().String()
}

func page(address, path string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}

// TestNotReady checks that the reason is on the page.
func TestNotReady(t *testing.T) {
	a := newAgent(t, &cluster{})
	require.NoError(t, os.Remove(filepath.Join(a.Installer.NetDir, "10-net.conflist")))
	a.HTTP = freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	require.Eventually(t, func() bool { return strings.HasPrefix(page(a.HTTP, "/ready"), "503 "+a.Installer.NetDir) }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

// TestFailureEndsAgent checks that an agent which cannot watch its folders ends with the reason.
func TestFailureEndsAgent(t *testing.T) {
	a := newAgent(t, &cluster{})
	a.Installer.NetDir = filepath.Join(t.TempDir(), "missing")
	require.ErrorContains(t, a.Run(t.Context()), a.Installer.NetDir)
}

// TestSelectedNodes checks which nodes a DaemonSet selects.
func TestSelectedNodes(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"mesh": "true", "cores": "8"}}}
	term := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		r := []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}
		if key == "metadata.name" {
			return corev1.NodeSelectorTerm{MatchFields: r}
		}
		return corev1.NodeSelectorTerm{MatchExpressions: r}
	}
	requires := func(terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}}
	}
	tolerates := func(list ...corev1.Toleration) corev1.PodSpec { return corev1.PodSpec{Tolerations: list} }
	taint := corev1.Taint{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoExecute}
	for name, tc := range map[string]struct {
		pod    corev1.PodSpec
		taints []corev1.Taint
		want   bool
	}{
		"all nodes":               {want: true},
		"a label":                 {pod: corev1.PodSpec{NodeSelector: map[string]string{"mesh": "true"}}, want: true},
		"another value":           {pod: corev1.PodSpec{NodeSelector: map[string]string{"mesh": "false"}}},
		"a missing label":         {pod: corev1.PodSpec{NodeSelector: map[string]string{"zone": ""}}},
		"preferred nodes":         {pod: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, want: true},
		"In":                      {pod: requires(term("mesh", corev1.NodeSelectorOpIn, "yes", "true")), want: true},
		"not In":                  {pod: requires(term("mesh", corev1.NodeSelectorOpIn, "yes"))},
		"NotIn, without label":    {pod: requires(term("zone", corev1.NodeSelectorOpNotIn, "a")), want: true},
		"Exists":                  {pod: requires(term("zone", corev1.NodeSelectorOpExists))},
		"DoesNotExist":            {pod: requires(term("mesh", corev1.NodeSelectorOpDoesNotExist))},
		"Gt":                      {pod: requires(term("cores", corev1.NodeSelectorOpGt, "4")), want: true},
		"Lt":                      {pod: requires(term("cores", corev1.NodeSelectorOpLt, "4"))},
		"its name":                {pod: requires(term("metadata.name", corev1.NodeSelectorOpIn, "n1")), want: true},
		"another name":            {pod: requires(term("metadata.name", corev1.NodeSelectorOpIn, "n2"))},
		"one of several":          {pod: requires(term("zone", corev1.NodeSelectorOpExists), term("mesh", corev1.NodeSelectorOpExists)), want: true},
		"an empty term":           {pod: requires(corev1.NodeSelectorTerm{})},
		"a taint":                 {taints: []corev1.Taint{taint}},
		"a preference":            {taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}}, want: true},
		"a condition of the node": {taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, want: true},
		"all taints tolerated":    {pod: tolerates(corev1.Toleration{Operator: corev1.TolerationOpExists}), taints: []corev1.Taint{taint}, want: true},
		"a value tolerated":       {pod: tolerates(corev1.Toleration{Key: "gpu", Value: "a"}), taints: []corev1.Taint{taint}, want: true},
		"another value tolerated": {pod: tolerates(corev1.Toleration{Key: "gpu", Value: "b"}), taints: []corev1.Taint{taint}},
		"another effect":          {pod: tolerates(corev1.Toleration{Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule}), taints: []corev1.Taint{taint}},
	} {
		t.Run(name, func(t *testing.T) {
			n, set := node.DeepCopy(), &appsv1.DaemonSet{}
			n.Spec.Taints, set.Spec.Template.Spec = tc.taints, tc.pod
			require.Equal(t, tc.want, selects(set, n))
		})
	}
}

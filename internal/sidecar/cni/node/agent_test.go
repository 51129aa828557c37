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
	fails          error // of all writes

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

func (c *cluster) Own(context.Context) (*appsv1.DaemonSet, error) { return &appsv1.DaemonSet{}, c.own }

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
// if its DaemonSet was removed.
func TestLife(t *testing.T) {
	for name, tc := range map[string]struct {
		own   error
		stays bool
	}{
		"upgrade":                     {nil, true},
		"API server away":             {apierrors.NewServiceUnavailable("starts"), true},
		"DaemonSet removed":           {apierrors.NewNotFound(schema.GroupResource{Resource: "daemonsets"}, "n"), false},
		"rights removed":              {apierrors.NewForbidden(schema.GroupResource{Resource: "daemonsets"}, "n", nil), false},
		"service account removed too": {apierrors.NewUnauthorized("who"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cart := injected(t, "cart")
			a := newAgent(t, &cluster{own: tc.own, copied: map[string]*corev1.Pod{"shop/cart": cart}})
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

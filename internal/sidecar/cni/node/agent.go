// Package node is the node agent of the CNI plugin, a Pod of a DaemonSet. It answers the plugin's questions about Pods,
// installs the plugin, and repairs Pods that started without it.
//
// agent.go has the life of the agent, answer.go its answers, repair.go and netns.go the repair.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/httpserve"
	"github.com/moonsail/moonsail/internal/sidecar/cni"
	"github.com/moonsail/moonsail/internal/sidecar/cni/install"
)

// Cluster is the access to the API server: *kube.NodeAgent.
type Cluster interface {
	// Run keeps a copy of the node's Pods until ctx ends. It calls the agent's PodChanged and PodGone.
	Run(ctx context.Context) error
	Get(namespace, name string) *corev1.Pod // of the copy; nil: it has none
	Read(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Delete(ctx context.Context, pod *corev1.Pod) error
	Label(ctx context.Context, pod *corev1.Pod, key, value string) error
	Event(ctx context.Context, pod *corev1.Pod, kind, reason, message string) error
	// Own returns the DaemonSet of the agent.
	Own(ctx context.Context) (*appsv1.DaemonSet, error)
	// OwnNode returns the node of the agent.
	OwnNode(ctx context.Context) (*corev1.Node, error)
}

// Agent is the node agent. Its fields are set before Run.
type Agent struct {
	Cluster   Cluster
	Installer *install.Installer
	Socket    string // where the plugin calls
	HTTP      string // address of /ready and /metrics
	Repair    Repair
	Log       *slog.Logger

	metrics  *metrics
	repairer *repairer
	ready    atomic.Pointer[string] // why the agent is not ready; nil: it is
}

// Prepare prepares the agent for PodChanged and Run.
func (a *Agent) Prepare() {
	a.metrics = newMetrics()
	a.repairer = newRepairer(a)
	a.checked(errors.New("the CNI plugin is not installed yet"))
	a.Installer.Checked = a.checked
}

// PodChanged is called with each Pod of the node that is new or has changed.
func (a *Agent) PodChanged(pod *corev1.Pod) {
	a.repairer.see(pod.UID)
	a.repairer.add(pod)
}

// PodGone is called with each Pod that has left the node.
func (a *Agent) PodGone(pod *corev1.Pod) { a.repairer.forget(pod.UID) }

// checked records whether the plugin is installed.
func (a *Agent) checked(err error) {
	a.metrics.installed(err)
	if err == nil {
		a.ready.Store(nil)
		return
	}
	why := err.Error()
	a.ready.Store(&why)
}

// Run answers, installs and repairs until ctx ends, or one of these fails. Then it removes the plugin if no
// agent follows. Otherwise, as during an upgrade, the plugin stays, and Pods wait for the next agent.
func (a *Agent) Run(ctx context.Context) error {
	ln, err := listen(a.Socket)
	if err != nil {
		return err
	}
	server := &cni.Server{Answer: a.answer, Done: a.done}
	group, running := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return server.Serve(ctx, ln) },
		a.Cluster.Run, a.repairer.run, a.serveHTTP, a.Installer.Run,
	} {
		group.Go(func() error { return part(running) })
	}
	err = group.Wait()
	//nolint:contextcheck // ctx has ended
	if why := a.last(context.Background()); why != "" {
		a.Log.Info("removing the CNI plugin", "reason", why)
		return errors.Join(err, a.Installer.Remove())
	}
	a.Log.Info("the CNI plugin stays, and new Pods of this node wait for the next agent")
	return err
}

// listen opens the socket. Only root may call it. A socket that an earlier agent left is replaced.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // the next agent may listen there already
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = ln.Close()
		return nil, err
	}
	return ln, nil
}

// Limits of the pages.
const (
	headerTimeout = 5 * time.Second
	pageTimeout   = 30 * time.Second
	closeTimeout  = time.Second
)

// serveHTTP serves /ready and /metrics.
func (a *Agent) serveHTTP(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if why := a.ready.Load(); why != nil {
			http.Error(w, *why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.HTTP)
	if err != nil {
		return fmt.Errorf("%s: %w", a.HTTP, err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, WriteTimeout: pageTimeout}
	return httpserve.Serve(ctx, server, ln, closeTimeout)
}

// Attempts to read the DaemonSet when the agent ends: less than the grace period of its Pod.
const (
	lastAttempts = 3
	lastEvery    = time.Second
	lastTimeout  = 3 * time.Second
)

// last returns why no agent follows on this node; empty: one does. The DaemonSet was removed, perhaps with the agent's rights, or
// does not select the node any more. If the API server does not answer, as when a node shuts down, an agent follows: the
// plugin must be there when the node starts again.
func (a *Agent) last(ctx context.Context) (why string) {
	for attempt := range lastAttempts {
		if attempt > 0 && clock.Sleep(ctx, lastEvery) != nil {
			return ""
		}
		within, cancel := context.WithTimeout(ctx, lastTimeout)
		why, known := a.tryLast(within)
		cancel()
		if known {
			return why
		}
	}
	return ""
}

// tryLast is an attempt of last.
func (a *Agent) tryLast(ctx context.Context) (why string, known bool) {
	set, err := a.Cluster.Own(ctx)
	switch {
	case err == nil && set.DeletionTimestamp != nil:
		return "the DaemonSet is being removed", true
	case apierrors.IsNotFound(err):
		return "the DaemonSet was removed", true
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return "the agent has no right to read its DaemonSet, as after its removal: " + err.Error(), true
	case err != nil:
		return "", false
	}
	node, err := a.Cluster.OwnNode(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return "", true
	case err != nil:
		a.Log.Warn("cannot read the node: the plugin stays even if the DaemonSet does not select the node any more", "error", err)
		return "", apierrors.IsForbidden(err)
	case !selects(set, node):
		return "the DaemonSet does not select the node " + node.Name + " any more", true
	}
	return "", true
}

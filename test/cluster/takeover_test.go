package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moonsail/moonsail/internal/controlplane"
	statuses "github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/test/kubetest"
)

// authorized is an AuthorizationPolicy about a caller of a namespace's workloads. A proxy without services has filter
// chains for connections only.
func authorized(name, caller string) string {
	return fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: %s}
spec: {rules: [{from: [{source: {principals: [cluster.local/ns/%s/sa/default]}}]}]}
`, name, caller)
}

// cable connects a control plane with the API server; it can be cut.
type cable struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards both
	conns []net.Conn
	isCut bool
}

// through writes a kubeconfig that leads through a cable.
func through(t *testing.T, c *kubetest.Cluster) (string, *cable) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + ln.Addr().String()
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	w := &cable{listener: ln, to: strings.TrimPrefix(c.Server(), "https://")}
	var accepting sync.WaitGroup
	accepting.Go(func() { w.accept(&accepting) })
	t.Cleanup(func() {
		w.cut()
		accepting.Wait()
	})
	return file, w
}

func (w *cable) accept(carrying *sync.WaitGroup) {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.to)
		if err != nil {
			in.Close()
			continue
		}
		if !w.hold(in, out) {
			return
		}
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			carrying.Go(func() {
				_, _ = io.Copy(way[0], way[1]) // ends when either end does
				way[0].Close()
			})
		}
	}
}

// hold registers connections. If the cable is cut, it closes them.
func (w *cable) hold(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, conns...)
	if w.isCut {
		for _, conn := range conns {
			conn.Close()
		}
	}
	return !w.isCut
}

func (w *cable) cut() {
	w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, conn := range w.conns {
		conn.Close()
	}
}

// holder returns the control plane that writes statuses; "": none.
func holder(ctx context.Context, c *kubetest.Cluster) (string, error) {
	l, err := c.Client.CoordinationV1().Leases("istio-system").Get(ctx, statuses.LeaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return "", err
	}
	return *l.Spec.HolderIdentity, nil
}

// TestStatusWriterTakeover cuts the leader off, so that it cannot release its Lease. Another control plane must
// take over.
func TestStatusWriterTakeover(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	file, wire := through(t, c)
	runControl(t, c, func(o *controlplane.Options) { o.Kubernetes.Kubeconfig = file })
	c.Apply(t, ns, web+"---"+route(badHeader))
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
	leader, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.NotEmpty(t, leader)

	second := runControl(t, c, nil)
	c.Apply(t, ns, route(""))
	awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted)
	still, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, leader, still, "the second does not write")

	wire.cut()
	c.Apply(t, ns, route(badHeader))
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonInvalid)
	next, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.NotEqual(t, leader, next)

	second.stop() // and it lets go
	last, err := holder(t.Context(), c)
	require.NoError(t, err)
	require.Empty(t, last)
}

package cluster

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// wire forwards connections. When it is cut, existing connections stay open but pass nothing, neither a reset nor an
// end. Later ones work.
type wire struct {
	net.Listener
	to      string
	now     atomic.Int64 // cuts so far
	running sync.WaitGroup
	mu      sync.Mutex // guards conns
	conns   []net.Conn
}

func startWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{Listener: l, to: to}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			c.Close()
		}
		w.mu.Unlock()
		w.running.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		a, err := w.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", w.to)
		if err != nil {
			a.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, a, b)
		w.mu.Unlock()
		begun := w.now.Load()
		w.running.Go(func() { w.forward(a, b, begun) })
		w.running.Go(func() { w.forward(b, a, begun) })
	}
}

// forward reads to the end, and writes until the cut: the sender does not notice it.
func (w *wire) forward(to, from net.Conn, begun int64) {
	for buffer := make([]byte, 32<<10); ; {
		n, err := from.Read(buffer)
		if w.now.Load() != begun {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if _, wrong := to.Write(buffer[:n]); err != nil || wrong != nil {
			to.Close()
			return
		}
	}
}

// TestSilentConnection checks that a connection to the API server that has fallen silent without an end is given up,
// and that changes arrive over another one.
func TestSilentConnection(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	c := kubetest.Alone(t)
	ns := c.Namespace(t)
	w := startWire(t, strings.TrimPrefix(c.Server(), "https://"))
	// Clients with equal TLS settings share a transport, which keeps the timeouts with which the first of them created
	// it: after other tests those are 30 and 15 s. DisableCompression is part of these settings.
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.DisableCompression = "https://"+w.Addr().String(), true
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	s := runControl(t, c, func(o *controlplane.Options) { o.Kubernetes, o.Status = &kube.Cluster{Kubeconfig: path}, false })
	p := connect(t, s.addr, ns)
	service := func(name string) {
		c.Apply(t, ns, "{apiVersion: v1, kind: Service, metadata: {name: "+name+"}, spec: {ports: [{name: http, port: 80}]}}")
		require.Eventually(t, func() bool {
			return p.version(resource.Cluster, "outbound|80||"+name+"."+ns+".svc.cluster.local") != ""
		}, patience, 10*time.Millisecond)
	}
	service("before")
	w.now.Add(1)
	began := time.Now()
	service("after")
	t.Logf("the change came %s after the cut", time.Since(began).Round(100*time.Millisecond))
}

package istiod

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/moonsail/moonsail/test/kubetest"
)

// portForwarder is the part of kubelets that `kubectl port-forward` needs: it connects to the ports of Pods.
type portForwarder struct {
	c       *kubetest.Cluster
	running sync.WaitGroup
	ctx     context.Context // ends with the test
}

// forwardPorts makes the API server send port forwards of all nodes to this process, until the test ends.
func forwardPorts(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &portForwarder{c: c, ctx: ctx}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /portForward/{namespace}/{pod}", p.forward)
	s := httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		cancel()
		s.Close()
		p.running.Wait()
	})
	addr := s.Listener.Addr().(*net.TCPAddr)
	nodes, err := c.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		for j := range n.Status.Addresses {
			if a := &n.Status.Addresses[j]; a.Type == corev1.NodeHostName { // the API server prefers it
				a.Address = addr.IP.String()
			}
		}
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(addr.Port) //nolint:gosec // a port
		_, err = c.Client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}

// forward serves one port forward. Each connection has two streams: first one for an error, then one for its bytes.
func (p *portForwarder) forward(w http.ResponseWriter, r *http.Request) {
	p.running.Add(1)
	defer p.running.Done()
	pod, err := p.c.Client.CoreV1().Pods(r.PathValue("namespace")).Get(p.ctx, r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return // it has answered
	}
	var mu sync.Mutex
	problems := map[string]httpstream.Stream{} // by request
	conn := spdy.NewResponseUpgrader().UpgradeResponse(quietWriter{w}, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		mu.Lock()
		defer mu.Unlock()
		request := stream.Headers().Get(corev1.PortForwardRequestIDHeader)
		if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			problems[request] = stream
			return nil
		}
		problem := problems[request]
		delete(problems, request)
		p.running.Go(func() {
			<-replied
			p.connect(net.JoinHostPort(pod.Status.PodIP, stream.Headers().Get(corev1.PortHeader)), stream, problem)
		})
		return nil
	})
	if conn == nil {
		return
	}
	select {
	case <-p.ctx.Done():
	case <-conn.CloseChan():
	}
	_ = conn.Close() // it may be closed
}

// connect carries bytes between a stream and an address.
func (p *portForwarder) connect(addr string, stream, problem httpstream.Stream) {
	defer func() { _ = stream.Close() }() // it may be closed
	to, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", addr)
	if err != nil {
		_, _ = io.WriteString(problem, err.Error()) // the client may be gone
		_ = problem.Close()
		return
	}
	_ = problem.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(to, stream) // ends with the client
		_ = to.Close()
	})
	_, _ = io.Copy(stream, to)
	_ = stream.Reset()
	_ = to.Close()
	sending.Wait()
}

// quietWriter gives connections that end without errors. After an error, package spdystream keeps a goroutine for a second.
type quietWriter struct{ http.ResponseWriter }

func (w quietWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return quietConn{conn}, buffered, err
}

type quietConn struct{ net.Conn }

func (c quietConn) Close() error {
	_ = c.Conn.Close() // the other side may be gone
	return nil
}

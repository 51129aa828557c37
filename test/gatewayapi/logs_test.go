package gatewayapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podLog is the output of a Pod, line by line, which is also written to a file.
type podLog struct {
	file *os.File

	mu    sync.Mutex // guards the fields below
	rest  []byte     // of an incomplete line
	lines []logLine
}

type logLine struct {
	at   time.Time
	text string
}

// Write implements io.Writer.
func (l *podLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ended := bytes.Cut(l.rest, []byte("\n"))
		if !ended {
			return l.file.Write(p)
		}
		l.lines, l.rest = append(l.lines, logLine{time.Now(), string(line)}), rest
	}
}

// since writes the lines of a time and later. The time has whole seconds, as in Kubernetes.
func (l *podLog) since(t time.Time, w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !line.at.Before(t) {
			fmt.Fprintln(w, line.text)
		}
	}
}

// podLogs are the logs of running Pods, by "namespace/name".
type podLogs struct {
	mu sync.Mutex // guards logs
	of map[string]*podLog
}

func (p *podLogs) open(file, pod string) (*podLog, error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	l := &podLog{file: f}
	p.mu.Lock()
	p.of[pod] = l
	p.mu.Unlock()
	return l, nil
}

// ServeHTTP answers the API server as a kubelet does: /containerLogs/NAMESPACE/POD/CONTAINER.
func (p *podLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 5 || parts[1] != "containerLogs" {
		http.NotFound(w, r)
		return
	}
	p.mu.Lock()
	l := p.of[parts[2]+"/"+parts[3]]
	p.mu.Unlock()
	if l == nil {
		http.NotFound(w, r)
		return
	}
	since, _ := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime")) // none: all
	l.since(since, w)
}

// kubeletPort is where the API server requests logs.
const kubeletPort = 10250

// serveLogs serves logs to the API server, which skips names of nodes that cannot be resolved.
func serveLogs(t *testing.T, c *cluster) *podLogs {
	t.Helper()
	logs := &podLogs{of: map[string]*podLog{}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(nodeAddress, fmt.Sprint(kubeletPort)))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(logs)
	_ = server.Listener.Close()
	server.Listener, server.TLS = listener, &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	require.NoError(t, c.moveNodes(t.Context()))
	return logs
}

func (c *cluster) moveNodes(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := c.client.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
		if err := c.client.Status().Update(ctx, n, &client.SubResourceUpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

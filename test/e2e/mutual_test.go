package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

// mutual is a mesh of two members, and a service without a sidecar. Its control plane issues certificates for tokens of
// a file.
type mutual struct {
	*mesh
	secure, caDir  string // where certificates and configuration are served, and the authority
	root           *catest.Root
	client, server *member
	plain          *app
}

const tokens = "client-token,shop,client\nserver-token,shop,server\ngateway-token,edge,gateway\n"

// longDrain keeps an Envoy's replaced listeners for longer than any test. With little CPU, compiling a plugin's module
// may block the main thread for more than the usual 45 s. Envoy then ends them, and new connections, at once.
const longDrain = "drainDuration: 3600s"

// startMutual starts a mutual with additional configuration.
func startMutual(t *testing.T, more ...string) *mutual {
	t.Helper()
	return startMutualWith(t, func(*controlplane.Options) {}, more...)
}

// startMutualWith changes the options of its control plane.
func startMutualWith(t *testing.T, change func(*controlplane.Options), more ...string) *mutual {
	t.Helper()
	m := &mutual{client: newMember("client"), server: newMember("server"), plain: startApp(t, "plain", "v1"),
		caDir: filepath.Join(t.TempDir(), "ca")}
	m.server.applications(t)
	m.client.annotations = map[string]string{agent.ProxyConfigAnnotation: ownTracing + "\n" + longDrain} // has no effect without tracing
	m.server.annotations = map[string]string{agent.ProxyConfigAnnotation: longDrain}
	addr := make(chan string, 1)
	m.mesh = startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
		o.Identity = controlplane.Identity{Addr: "127.0.0.1:0", CADir: m.caDir, TokenFile: fileWith(t, "tokens", []byte(tokens)),
			Listening: func(a net.Addr) { addr <- a.String() }}
		change(o)
	}, m.config("server", more...)...)
	m.secure = await.From(t, addr)
	m.root = m.authority()
	m.client.start(t, m)
	m.server.start(t, m)
	return m
}

// requireNothingHeld checks that Envoys accepted all resources.
func (m *mutual) requireNothingHeld() {
	m.t.Helper()
	for _, p := range m.proxies() {
		require.Empty(m.t, held(p), p.Name)
	}
}

// authority is the control plane's, to sign what it would refuse.
func (m *mutual) authority() *catest.Root {
	m.t.Helper()
	cert, err := os.ReadFile(filepath.Join(m.caDir, ca.CertFile))
	require.NoError(m.t, err)
	key, err := os.ReadFile(filepath.Join(m.caDir, ca.KeyFile))
	require.NoError(m.t, err)
	root, err := catest.ReadRoot(cert, key)
	require.NoError(m.t, err)
	return root
}

// config returns the mesh, with the account of the server's Pod and additional configuration.
func (m *mutual) config(account string, more ...string) []string {
	plain := strings.ReplaceAll(service("plain", m.plain), fmt.Sprint("port: ", meshPort), fmt.Sprint("port: ", serviceHTTP))
	return append(more, m.client.documents("client"), m.server.documents(account), plain)
}

// call calls a host through the client's sidecar.
func (m *mutual) call(host string, port int) (status int, body string) {
	m.t.Helper()
	return m.get1(fmt.Sprintf("http://%s:%d/", m.client.ip, port), host)
}

// get1 makes one request on a separate connection; status 0: it failed.
func (m *mutual) get1(url, host string) (status int, body string) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(m.t, err)
	req.Host, req.Close = host, true
	req.Header.Set("X-Forwarded-Client-Cert", "URI="+spiffeID("anybody")) // must not be trusted
	resp, err := (&http.Client{Timeout: callLimit}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(m.t, err)
	return resp.StatusCode, string(text)
}

// directly calls a port of the server in plain text, without the client's sidecar.
func (m *mutual) directly(port int) (status int, body string) {
	m.t.Helper()
	return m.get1(fmt.Sprintf("http://%s:%d/", m.server.ip, port), "server")
}

// line returns what a connection receives; "": nothing.
func (m *mutual) line(address string, port int) string {
	m.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", fmt.Sprintf("%s:%d", address, port))
	require.NoError(m.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(m.t, err)
	text, _ := bufio.NewReader(conn).ReadString('\n')
	return text
}

// handshake calls the server's HTTP port with a certificate; nil: without.
func (m *mutual) handshake(cert *tls.Certificate, alpn ...string) (int, error) {
	m.t.Helper()
	return m.handshakeBy(&tls.Config{MaxVersion: tls.VersionTLS13}, cert, alpn...)
}

// handshakeBy does a TLS handshake with the versions and cipher suites of a configuration.
func (m *mutual) handshakeBy(config *tls.Config, cert *tls.Certificate, alpn ...string) (int, error) {
	m.t.Helper()
	config.InsecureSkipVerify, config.NextProtos = true, alpn // the server is not what is tested
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	dialer := &tls.Dialer{Config: config}
	conn, err := dialer.DialContext(m.t.Context(), "tcp", fmt.Sprintf("%s:%d", m.server.ip, memberHTTP))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}

func (m *mutual) pair(signer *catest.Root, id string) *tls.Certificate {
	m.t.Helper()
	c, err := signer.Pair(time.Hour, []string{id}, nil)
	require.NoError(m.t, err)
	return c
}

// peer returns the caller of the last request by the header that the server's application received; "": unknown.
func (m *mutual) peer() string {
	m.t.Helper()
	for part := range strings.SplitSeq(m.server.backend.last(m.t).header.Get("X-Forwarded-Client-Cert"), ";") {
		if id, ok := strings.CutPrefix(part, "URI="); ok {
			return id
		}
	}
	return ""
}

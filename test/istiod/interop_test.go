package istiod

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/logtext"
)

// Ports of a member: of its sidecar, its application, and where it calls others.
const (
	memberPort, applicationPort, servicePort = 18080, 19080, 20080
)

// ofIstiod and ofMoonsail are the namespaces whose sidecars each control plane configures.
const ofIstiod, ofMoonsail = "of-istiod", "of-moonsail"

// interop is a mesh with two control planes and one root of trust.
type interop struct {
	t       *testing.T
	c       *kubetest.Cluster
	root    string            // file
	secure  map[string]string // where a namespace's sidecars connect
	members map[string]*member
}

// member is a workload with a real Envoy.
type member struct {
	name, ns, ip string
	log          logtext.Buffer
	peer         atomic.Value // string: the client's identity in the last request
	flaky        atomic.Int64 // requests for /flaky so far
}

func (m *member) String() string { return m.name + "." + m.ns }

func (m *member) identity() string {
	return model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: m.ns, ServiceAccount: m.name}.String()
}

// policies apply to both namespaces.
const policies = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: callers, namespace: %[1]s}
spec:
  selector: {matchLabels: {app: server}}
  rules:
  - from: [{source: {principals: [cluster.local/ns/%[2]s/sa/client, cluster.local/ns/%[3]s/sa/client]}}]
    to: [{operation: {paths: [/, /flaky]}}]
  - from: [{source: {principals: [cluster.local/ns/%[2]s/sa/client]}}]
    to: [{operation: {paths: [/istiods]}}]
  - from: [{source: {principals: [cluster.local/ns/%[3]s/sa/client]}}]
    to: [{operation: {paths: [/moonsails]}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: server, namespace: %[1]s}
spec:
  hosts: [server.%[1]s.svc.cluster.local]
  http: [{route: [{destination: {host: server.%[1]s.svc.cluster.local}}], retries: {attempts: 2, retryOn: 5xx}}]
`

// documents are a member's Pod, Service and Sidecar.
func (m *member) documents() string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: %[2]s}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {selector: {app: %[1]s}, ports: [{name: http, port: %[6]d, targetPort: %[4]d}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: %[1]s
  namespace: %[2]s
  labels: {app: %[1]s, security.istio.io/tlsMode: istio}
  annotations: {kubelet.moonsail.dev/ip: %[3]s}
spec: {serviceAccountName: %[1]s, containers: [{name: app, image: app}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  workloadSelector: {labels: {app: %[1]s}}
  ingress: [{port: {number: %[4]d, name: http, protocol: HTTP}, bind: %[3]s, captureMode: NONE, defaultEndpoint: "0.0.0.0:%[5]d"}]
  egress: [{port: {number: %[6]d, name: http, protocol: HTTP}, bind: %[3]s, captureMode: NONE, hosts: ["*/*"]}]
`, m.name, m.ns, m.ip, memberPort, applicationPort, servicePort)
}

// TestInteroperability runs sidecars of istiod beside sidecars of Moonsail: real Envoys in one mesh with one root of trust.
// Each client calls each server with mutual TLS; policies select by the client's identity, and requests are tried again.
//
// The Envoys are not Istio's, so istiod leaves out the filters that only Istio's has: it does not count requests then.
func TestInteroperability(t *testing.T) {
	if *istiodPath == "" {
		t.Skip("istiod takes minutes to build: run make interop-istiod")
	}
	x := startInterop(t)
	for _, client := range []string{ofIstiod, ofMoonsail} {
		for _, server := range []string{ofIstiod, ofMoonsail} {
			t.Run(client+" calls "+server, func(t *testing.T) { x.calls(t, x.members["client."+client], x.members["server."+server]) })
		}
	}
}

func startInterop(t *testing.T) *interop {
	t.Helper()
	x := &interop{t: t, c: kubetest.Start(t, "--pod-cidr=127.78.0.0/16"), secure: map[string]string{}, members: map[string]*member{}}
	dir := x.authority()
	x.root = filepath.Join(dir, ca.RootFile)
	for i, name := range []string{"client." + ofIstiod, "server." + ofIstiod, "client." + ofMoonsail, "server." + ofMoonsail} {
		m := &member{ip: fmt.Sprintf("127.78.9.%d", i+1)}
		m.name, m.ns, _ = strings.Cut(name, ".")
		m.peer.Store("")
		x.members[name] = m
	}
	for _, ns := range []string{ofIstiod, ofMoonsail} {
		x.c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+ns+"}")
		x.c.Apply(t, "", fmt.Sprintf(policies, ns, ofIstiod, ofMoonsail))
	}
	for _, m := range x.members {
		x.c.Apply(t, "", m.documents())
	}
	x.secure[ofIstiod] = startIstiodWith(t, x.c, *istiodPath, []string{
		"ROOT_CA_DIR=" + dir, "PILOT_ENABLE_ALPN_FILTER=false", "PILOT_ENABLE_METADATA_EXCHANGE=false", "XDS_AUTH=true",
	}).secure
	x.secure[ofMoonsail] = x.moonsail()
	for _, m := range x.members {
		m.application(t)
		x.sidecar(m)
	}
	return x
}

// authority makes the certificate authority of both control planes, and returns its folder.
func (x *interop) authority() string {
	dir := x.t.TempDir()
	files := rootFiles(x.t)
	_, err := x.c.Client.CoreV1().Secrets(rootNamespace).Create(x.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "cacerts"}, Data: files,
	}, metav1.CreateOptions{})
	require.NoError(x.t, err)
	for name, text := range files {
		require.NoError(x.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return dir
}

// moonsail runs Moonsail's control plane, and returns where it issues certificates.
func (x *interop) moonsail() string {
	addr, ended := make(chan string, 1), make(chan error, 1)
	var log logtext.Buffer
	o := controlplane.Options{
		Kubernetes: &kube.Cluster{Kubeconfig: x.c.Kubeconfig()}, Mesh: model.DefaultMesh(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Identity: controlplane.Identity{Addr: "127.0.0.1:0", Listening: func(a net.Addr) { addr <- a.String() }},
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- controlplane.Run(ctx, o) }()
	x.t.Cleanup(func() {
		cancel()
		require.NoError(x.t, await.From(x.t, ended))
		if x.t.Failed() {
			x.t.Logf("Moonsail's log:\n%s", &log)
		}
	})
	return await.From(x.t, addr)
}

// application answers requests with the server's name. The first of each two requests for /flaky fails.
func (m *member) application(t *testing.T) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", m.ip, applicationPort))
	require.NoError(t, err)
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.peer.Store(clientOf(r.Header.Get("X-Forwarded-Client-Cert")))
		if r.URL.Path == "/flaky" && m.flaky.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, m.String())
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		_ = s.Close()
		await.From(t, ended) //nolint:errcheck // it was told to end
	})
}

// clientOf returns the URI in X-Forwarded-Client-Cert.
func clientOf(header string) string {
	for part := range strings.SplitSeq(header, ";") {
		if id, ok := strings.CutPrefix(part, "URI="); ok {
			return id
		}
	}
	return ""
}

// sidecar runs a member's Envoy until the test ends, and waits until it is ready.
func (x *interop) sidecar(m *member) {
	t := x.t
	token, err := x.c.Client.CoreV1().ServiceAccounts(m.ns).CreateToken(t.Context(), m.name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"istio-ca"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(token.Status.Token), 0o600))
	work, err := os.MkdirTemp("", "interop-") // short enough for Unix sockets
	require.NoError(t, err)
	binary, err := envoy.Find("")
	require.NoError(t, err)
	one := 1
	config := agent.Config{
		Workload: workload.Workload{
			Name: m.name, Namespace: m.ns, ServiceAccount: m.name, IPs: []string{m.ip}, WorkloadName: m.name,
			Labels: map[string]string{"app": m.name, model.LabelTLSMode: model.TLSModeLabelIstio},
		},
		Interception: model.InterceptNone, EnvoyPath: binary.Path, Concurrency: &one, WorkDir: work,
		XDS: agent.XDS{Address: x.secure[m.ns], RootCert: x.root, ServerName: "istiod.istio-system.svc"},
		CA:  agent.CA{TokenFile: tokenFile}, Log: slog.New(slog.NewTextHandler(&m.log, nil)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	abort, ended := make(chan struct{}), make(chan error, 1)
	config.Abort = abort
	go func() { ended <- agent.Run(ctx, config) }()
	t.Cleanup(func() {
		close(abort)
		cancel()
		await.From(t, ended) //nolint:errcheck // it was told to end
		_ = os.RemoveAll(work)
		if t.Failed() {
			t.Logf("the log of %s:\n%s", m, &m.log)
		}
	})
	x.c.Eventually(t, m.String()+" is ready", func(context.Context) error {
		if !strings.Contains(m.log.String(), "sidecar ready") {
			return fmt.Errorf("its log is\n%s", &m.log)
		}
		return nil
	})
}

// get makes a request through the client's sidecar.
func (m *member) get(ctx context.Context, server *member, path string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", m.ip, servicePort, path), http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host, req.Close = "server."+server.ns+".svc.cluster.local", true
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// calls checks the calls of a client to a server.
func (x *interop) calls(t *testing.T, client, server *member) {
	x.c.Eventually(t, "a call succeeds", func(ctx context.Context) error {
		status, body, err := client.get(ctx, server, "/")
		if err == nil && (status != http.StatusOK || body != server.String()) {
			err = fmt.Errorf("status %d, %q", status, body)
		}
		return err
	})
	require.Equal(t, client.identity(), server.peer.Load(), "the client's identity")

	// Without a certificate of the mesh, nobody gets in.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/", server.ip, memberPort), http.NoBody)
	require.NoError(t, err)
	if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
		require.Fail(t, "plain text is accepted", resp.Status)
	}

	for path, owner := range map[string]string{"/istiods": ofIstiod, "/moonsails": ofMoonsail, "/nobodys": ""} {
		want := http.StatusForbidden
		if owner == client.ns {
			want = http.StatusOK
		}
		status, body, err := client.get(t.Context(), server, path)
		require.NoError(t, err)
		require.Equal(t, want, status, "%s: %s", path, body)
	}

	before := server.flaky.Load()
	status, body, err := client.get(t.Context(), server, "/flaky")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.EqualValues(t, 2, server.flaky.Load()-before, "the request was tried twice")

	for _, side := range []struct {
		of       *member
		reporter string
	}{{client, "source"}, {server, "destination"}} {
		if side.of.ns == ofMoonsail {
			x.requireCounted(t, side.of, side.reporter, client, server)
		}
	}
}

// requireCounted waits until a member counts the successful calls with the labels of both ends.
func (x *interop) requireCounted(t *testing.T, of *member, reporter string, client, server *member) {
	t.Helper()
	labels := map[string]string{
		"reporter": reporter, "response_code": "200", "request_protocol": "http", "connection_security_policy": "mutual_tls",
		"source_principal": client.identity(), "destination_principal": server.identity(),
		"source_workload": client.name, "source_workload_namespace": client.ns,
		"destination_workload": server.name, "destination_workload_namespace": server.ns,
		"destination_service": "server." + server.ns + ".svc.cluster.local", "destination_service_name": "server",
	}
	if reporter == "source" {
		labels["connection_security_policy"] = "unknown" // as in Istio
	} else if client.ns == ofIstiod {
		labels["source_workload"] = "unknown" // its sidecar does not send the header with it
	}
	x.c.Eventually(t, of.String()+" counts requests as "+reporter, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+of.ip+":15020/stats/prometheus", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "istio_requests_total{") {
				lines = append(lines, line)
				if hasLabels(line, labels) {
					return nil
				}
			}
		}
		return fmt.Errorf("no sample has %v:\n%s", labels, strings.Join(lines, ""))
	})
}

func hasLabels(line string, labels map[string]string) bool {
	for name, value := range labels {
		if !regexp.MustCompile(`[{,]` + name + `="` + regexp.QuoteMeta(value) + `"`).MatchString(line) {
			return false
		}
	}
	return true
}

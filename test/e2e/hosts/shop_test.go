//go:build linux

package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/demo"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/test/netns"
)

// shopMesh is the demo's shop, each workload on a separate host. All inbound connections require mutual TLS. The
// control plane's authority issues certificates.
type shopMesh struct {
	*mesh
	caDir   string
	plane   *process
	members []*member
	workers int            // threads of each Envoy
	counted int            // how often calls were compared with their metrics
	direct  map[string]int // calls of the shopper to the catalog, by outcome
}

// member is a workload of the shop.
type member struct {
	*workload
	demo.Workload
	by intercept.Backend // which tool sets its rules; "": the agent's choice
}

// replicas of each service except reviews, which has one of each version.
const replicas = 2

// shopWorkloads returns the shop's workloads, replicas of each service.
func shopWorkloads() []demo.Workload {
	var out []demo.Workload
	for _, w := range demo.Shop(2 * demo.MinWorkloads) {
		n := slices.IndexFunc(out, func(o demo.Workload) bool { return o.Name == w.Name })
		same := 0
		for _, o := range out {
			if o.App == w.App {
				same++
			}
		}
		if n < 0 && (w.App == "reviews" || same < replicas) && (w.App != "cart" || same < 1) {
			out = append(out, w)
		}
	}
	return out
}

const shopCommon = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    accessLogFile: /dev/stdout
    # The shop only reads: what was under way when an Envoy died may be asked again.
    defaultHttpRetryPolicy: {attempts: 2, retryOn: "connect-failure,refused-stream,unavailable,cancelled,reset"}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}`

func startShop(t *testing.T) *shopMesh {
	t.Helper()
	return startShopWith(t, shopCommon, 1, intercept.NFTables, intercept.IPTables)
}

// startShopWith starts a shop with configuration that all share, and a number of worker threads in each Envoy. by are
// the tools that intercept workloads, in turn.
func startShopWith(t *testing.T, common string, workers int, by ...intercept.Backend) *shopMesh {
	t.Helper()
	netns.RequireRoot(t)
	netns.RequireCommand(t, "iptables-restore", "iptables")
	m := &shopMesh{
		mesh: &mesh{t: t, net: netns.New(t, false), dir: t.TempDir()}, caDir: filepath.Join(t.TempDir(), "ca"),
		workers: workers, direct: map[string]int{},
	}
	m.control = m.net.Host()
	for i, w := range shopWorkloads() {
		m.members = append(m.members, &member{Workload: w, workload: &workload{Host: m.net.Host(), name: w.Name}, by: by[i%len(by)]})
	}
	m.write("common.yaml", common)
	for i, s := range demo.Services {
		m.write("service-"+s+".yaml", m.serviceDocuments(s, i)...)
	}
	require.NoError(t, os.WriteFile(m.tokenFile(), []byte(m.tokens()), 0o600))
	m.startPlane()
	var all sync.WaitGroup
	for _, w := range m.members {
		m.startMember(w)
	}
	for _, w := range m.members {
		all.Go(func() { m.awaitReady(w.workload) })
	}
	all.Wait()
	return m
}

func (m *shopMesh) tokenFile() string { return m.caDir + "-tokens" }

// tokens returns the file of tokens by which the control plane authenticates workloads.
func (m *shopMesh) tokens() string {
	text := ""
	for _, w := range m.members {
		text += fmt.Sprintf("%s-token,shop,%s\n", w.name, w.App)
	}
	return text
}

// serviceDocuments returns a service and its workloads.
func (m *shopMesh) serviceDocuments(service string, number int) []string {
	endpoints := ""
	var pods []string
	for _, w := range m.members {
		if w.App != service {
			continue
		}
		endpoints += fmt.Sprintf("\n- {addresses: [%s], conditions: {ready: true}, targetRef: {kind: Pod, name: %s, namespace: shop}}", w.IP, w.name)
		pods = append(pods, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %s, version: %s, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: %[2]s, containers: [{name: app, ports: [{containerPort: %[4]d}]}]}
status: {podIP: %[5]s, phase: Running}`, w.name, w.App, w.Version, appPort, w.IP))
	}
	return append(pods, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec:
  clusterIP: 10.96.1.%[2]d
  selector: {app: %[1]s}
  ports: [{name: http, port: 80, targetPort: %[3]d}]`, service, number+1, appPort), fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[2]d}]
endpoints: %[3]s`, service, appPort, endpoints))
}

// anyService is an address in the mesh: sidecars route by the Host header.
const anyService = "10.96.1.1:80"

// startPlane starts the control plane, and waits until it is ready.
func (m *shopMesh) startPlane() {
	m.t.Helper()
	m.plane = run(m.t, m.control, "serve", "--config", m.dir, "--xds-addr", at(m.control, 15012), "--ca-dir", m.caDir,
		"--token-auth-file", m.tokenFile(), "--http-addr", "127.0.0.1:15014")
	eventually(m.t, "the control plane is ready", func() error {
		status, text, err := get(m.control, "http://127.0.0.1:15014/ready", "")
		if err == nil && status != http.StatusOK {
			err = errors.New(text)
		}
		return err
	})
}

// startMember starts a workload's application and its sidecar.
func (m *shopMesh) startMember(w *member) {
	m.t.Helper()
	if w.Serves() {
		run(m.t, w.Host, "demo", "app", "--name", w.name, "--service", w.App, "--version", w.Version,
			"--listen", at(w.Host, appPort), "--sidecar", anyService)
	}
	w.agent = run(m.t, w.Host, m.agentArgs(w, w.name+"-token")...)
}

func (m *shopMesh) agentArgs(w *member, token string) []string {
	m.t.Helper()
	binary, err := envoy.Find("")
	require.NoError(m.t, err)
	file := filepath.Join(m.t.TempDir(), "token")
	require.NoError(m.t, os.WriteFile(file, []byte(token), 0o600))
	return []string{
		"agent", "--intercept", "--intercept-with", string(cmp.Or(w.by, intercept.Auto)), "--name", w.name, "--namespace", "shop", "--service-account", w.App, "--ip", w.IP.String(),
		"--workload-name", w.App + "-" + w.Version, "--labels", "app=" + w.App + ",version=" + w.Version + ",security.istio.io/tlsMode=istio",
		"--xds-plaintext=false", "--xds-address", at(m.control, 15012), "--xds-root-cert", filepath.Join(m.caDir, ca.RootFile), "--token-file", file,
		// Certificates are valid for long and renewed every 2 s, so that none expires on a slow machine.
		"--cert-ttl", "10m", "--cert-grace-period-ratio", "0.997",
		"--envoy", binary.Path, "--concurrency", strconv.Itoa(m.workers),
	}
}

// of returns the workloads of a service.
func (m *shopMesh) of(service string) []*member {
	return slices.DeleteFunc(slices.Clone(m.members), func(w *member) bool { return w.App != service })
}

// shopper has no application: tests make calls from its host.
func (m *shopMesh) shopper() *member { return m.of("shopper")[0] }

var readyPid = regexp.MustCompile(`msg="sidecar ready".* pid=(\d+)`)

// envoys returns the process IDs of a member's Envoys that became ready, in order.
func (w *member) envoys(t *testing.T) []int {
	t.Helper()
	var out []int
	for _, found := range readyPid.FindAllStringSubmatch(w.agent.log.String(), -1) {
		pid, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		out = append(out, pid)
	}
	return out
}

// requireInterceptedBy checks that each host has the rules of the intended tool.
func (m *shopMesh) requireInterceptedBy(t *testing.T) {
	t.Helper()
	for _, w := range m.members {
		ours := slices.Contains(tables(t, w.Host), "moonsail")
		require.Equal(t, w.by == intercept.NFTables, ours, "%s by %s", w.name, w.by)
	}
}

// front requests the front page from the shopper's host on a separate connection.
func (m *shopMesh) front() error { return m.frontAs("") }

// frontAs is front with an id of the request, which services pass on; "": Envoy creates one.
func (m *shopMesh) frontAs(id string) error {
	status, text, err := getAs(m.shopper().Host, "http://"+anyService+"/", "frontend", id)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, strings.TrimSpace(text))
	}
	return err
}

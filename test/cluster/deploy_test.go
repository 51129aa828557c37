package cluster

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

// manifest is the output of "moonsail manifest".
type manifest struct {
	text       string
	config     corev1.ConfigMap
	service    corev1.Service // that leads to xDS with TLS
	deployment appsv1.Deployment
}

func readManifest(t *testing.T, revision string) *manifest {
	t.Helper()
	text, err := deploy.Manifest(deploy.Options{Image: "moonsail", Replicas: 2, Revision: revision})
	require.NoError(t, err)
	m := &manifest{text: string(text)}
	for doc := range strings.SplitSeq(m.text, "\n---\n") {
		var kind metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(doc), &kind))
		switch kind.Kind {
		case "ConfigMap":
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &m.config))
		case "Deployment":
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &m.deployment))
		case "Service":
			var s corev1.Service
			require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &s))
			if slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == 15012 }) {
				m.service = s
			}
		}
	}
	return m
}

// args returns the manifest's arguments, with ports of this machine.
func (m *manifest) args(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(file, []byte(m.config.Data["config"]), 0o600))
	var out []string
	for _, a := range m.deployment.Spec.Template.Spec.Containers[0].Args {
		a = strings.Replace(a, "/etc/moonsail/injection/config", file, 1)
		out = append(out, regexp.MustCompile(`-addr=[\d.]*:\d+$`).ReplaceAllString(a, "-addr=127.0.0.1:0"))
	}
	return out
}

// serving is a control plane in a process. at has its addresses, by service.
type serving struct {
	cmd *exec.Cmd
	at  map[string]string
}

var listens = regexp.MustCompile(`msg="serving ([^"]*)" .*?(?:addr|url)=(\S+)`)

// runManifest runs the control plane with the arguments and the service account of the manifest.
func runManifest(t *testing.T, c *kubetest.Cluster, m *manifest) *serving {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{at: map[string]string{}, cmd: exec.CommandContext(ctx, self, append(m.args(t), "--kubeconfig", c.KubeconfigAs(t, "istio-system", m.deployment.Spec.Template.Spec.ServiceAccountName))...)}
	s.cmd.Env = append(os.Environ(), labtest.AsMoonsail)
	r, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	var reading sync.WaitGroup
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		reading.Wait()
		_ = s.cmd.Wait()
		cancel()
	})
	lines := bufio.NewReader(r)
	for len(s.at) < 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, "it has ended: %s", line)
		if what := listens.FindStringSubmatch(line); what != nil {
			s.at[what[1]] = what[2]
		}
	}
	reading.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return s
}

// TestManifest applies the output of "moonsail manifest" to a real API server and runs the control plane with the
// rights that it gives. Injected Pods must get certificates with the injected settings. A second control plane of
// another revision must run beside the first, and sign with the same authority.
func TestManifest(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, accounts)
	c.Apply(t, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n")
	var roots *x509.CertPool
	for _, revision := range []string{model.DefaultRevision, "canary"} {
		m := readManifest(t, revision)
		// Nothing serves the Services here, so that the API server must not call them.
		c.Apply(t, "", strings.ReplaceAll(m.text, "failurePolicy: Fail", "failurePolicy: Ignore"))
		t.Cleanup(func() { m.away(c) })
		s := runManifest(t, c, m)
		answersReady(t, c, s)
		if roots == nil {
			roots = poolOf(t, rootsOf(t, c, ns))
		}
		config, err := inject.Load([]byte(m.config.Data["config"]))
		require.NoError(t, err)
		name, _, err := net.SplitHostPort(config.XDSAddress)
		require.NoError(t, err)
		conn := dialNamed(t, s.at["xDS with TLS"], name, roots)
		_, err = certificateOver(t, conn, tokenOf(t, c, ns, "web", "istio-ca"))
		require.NoError(t, err, revision)
	}
}

// away removes what other tests would see.
func (m *manifest) away(c *kubetest.Cluster) {
	ctx, hooks, name := context.Background(), c.Client.AdmissionregistrationV1(), m.deployment.Name
	suffix := strings.TrimPrefix(name, "moonsail")
	_ = hooks.MutatingWebhookConfigurations().Delete(ctx, "moonsail-injector"+suffix, metav1.DeleteOptions{}) // the cluster may be gone
	_ = hooks.ValidatingWebhookConfigurations().Delete(ctx, "moonsail-validator"+suffix, metav1.DeleteOptions{})
	_ = c.Client.AppsV1().Deployments("istio-system").Delete(ctx, name, metav1.DeleteOptions{})
	_ = c.Client.CoreV1().Services("istio-system").Delete(ctx, m.service.Name, metav1.DeleteOptions{})
}

// answersReady waits until a control plane reports that it is ready.
func answersReady(t *testing.T, c *kubetest.Cluster, s *serving) {
	t.Helper()
	c.Eventually(t, "it is ready", func(context.Context) error {
		resp, err := http.Get(strings.TrimSuffix(s.at["metrics and debug pages"], "/debug") + "/ready")
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("it says %s", resp.Status)
			}
		}
		return err
	})
	http.DefaultClient.CloseIdleConnections()
}

// TestManifestFits checks that injected sidecars connect to the addresses that the manifest serves.
func TestManifestFits(t *testing.T) {
	for revision, service := range map[string]string{model.DefaultRevision: controlplane.DefaultPeerService, "canary": "moonsail-canary"} {
		m := readManifest(t, revision)
		config, err := inject.Load([]byte(m.config.Data["config"]))
		require.NoError(t, err)
		require.False(t, config.XDSPlaintext)
		require.Equal(t, service+".istio-system.svc:15012", config.XDSAddress)
		require.Equal(t, service, m.service.Name)
		port := slices.IndexFunc(m.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == 15012 })
		require.Equal(t, "https-dns", m.service.Spec.Ports[port].Name, "peers are found by this name")
		args := m.deployment.Spec.Template.Spec.Containers[0].Args
		require.Contains(t, args, "--xds-addr=:15012")
		require.Contains(t, args, "--peer-service="+service)
		for _, a := range args {
			require.NotContains(t, a, "plaintext")
		}
	}
}

const saidOfProxies = `
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: all}
spec: {concurrency: 3, environmentVariables: {COLOUR: green, SIZE: small}}
---
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: large}
spec: {selector: {matchLabels: {app: ownlarge}}, environmentVariables: {SIZE: large}, image: {imageType: debug}}
`

// TestProxyConfigOnACluster checks that a real API server injects Pods with the settings of the ProxyConfigs that exist
// at that time.
func TestProxyConfigOnACluster(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t, "istio-injection=enabled")
	runInjector(t, c, ns)
	c.Apply(t, ns, saidOfProxies)
	n := 0
	injected := func(app string) (proxy corev1.Container, env map[string]string) {
		env = map[string]string{}
		c.Eventually(t, "an injected Pod as ProxyConfigs say", func(ctx context.Context) error {
			n++
			pod := fmt.Sprintf("pod-%d", n)
			if err := c.TryApply(ctx, ns, fmt.Sprintf(ownPod, pod, app, "")); err != nil {
				return err
			}
			o, err := c.Client.CoreV1().Pods(ns).Get(ctx, pod, metav1.GetOptions{})
			if err != nil {
				return err
			}
			i := slices.IndexFunc(o.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "istio-proxy" })
			if i < 0 {
				return fmt.Errorf("it has %v", names(o.Spec.InitContainers))
			}
			proxy = o.Spec.InitContainers[i]
			for _, e := range proxy.Env {
				env[e.Name] = e.Value
			}
			if env["COLOUR"] != "green" { // the control plane has not seen them yet
				return fmt.Errorf("env is %v", env)
			}
			return nil
		})
		return proxy, env
	}
	proxy, env := injected("small")
	require.Equal(t, "small", env["SIZE"])
	require.Contains(t, env["PROXY_CONFIG"], `"concurrency":3`)
	require.NotContains(t, proxy.Image, "debug")
	proxy, env = injected("large")
	require.Equal(t, "large", env["SIZE"])
	require.Contains(t, proxy.Image, "-debug")
}

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// ingress is what an installer of Istio adds: its gateway, and one for the Gateway API.
const ingress = `
apiVersion: v1
kind: Pod
metadata: {name: ingress, namespace: istio-system, labels: {app: istio-ingressgateway, istio: ingressgateway}}
spec: {containers: [{name: istio-proxy, image: auto}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bookinfo-gateway, labels: {gateway.networking.k8s.io/gateway-name: bookinfo-gateway}}
spec: {containers: [{name: istio-proxy, image: auto}]}
`

// callsOfCurl permits curl to call its sidecar without interception.
const callsOfCurl = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: curl}
spec:
  workloadSelector: {labels: {app: curl}}
  egress: [{port: {number: 9080, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, hosts: ["./*"]}]
`

// withSidecar are the Deployments whose Pods have real sidecars, by labels app and version.
var withSidecar = []string{"productpage-v1", "reviews-v1", "ratings-v1", "details-v1", "curl-"}

// controlPlane runs a control plane that issues certificates and writes statuses.
func (s *trialOfSamples) controlPlane() {
	var log logtext.Buffer
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the control plane's log:\n%s", &log)
		}
	})
	xds, url := make(chan net.Addr, 1), make(chan net.Addr, 1)
	runControl(s.t, s.c, func(o *controlplane.Options) {
		o.HTTPAddr, o.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(&log, nil))
		listening := o.Listening
		o.Listening = func(plain, http net.Addr) { url <- http; listening(plain, http) }
		o.Identity = controlplane.Identity{Addr: "127.0.0.1:0", Listening: func(a net.Addr) { xds <- a }}
	})
	s.xds, s.url = await.From(s.t, xds).String(), "http://"+await.From(s.t, url).String()
	s.t.Cleanup(http.DefaultClient.CloseIdleConnections)
	s.c.Eventually(s.t, "the control plane is ready", func(context.Context) error {
		if !ready(s.t, s.url) {
			return errors.New("it is not")
		}
		return nil
	})
	s.roots = filepath.Join(s.t.TempDir(), "roots.pem")
	require.NoError(s.t, os.WriteFile(s.roots, []byte(rootsOf(s.t, s.c, s.ns)), 0o600))
}

// page reads a debug page.
func (s *trialOfSamples) page(path string, into any) error {
	resp, err := http.Get(s.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// metric returns the lines of a metric of the control plane that are not 0.
func (s *trialOfSamples) metric(name string) []string {
	resp, err := http.Get(s.url + "/metrics")
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	var out []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
			out = append(out, line)
		}
	}
	return out
}

// deploy runs the Pods: an application in each, which answers with its name, and the sidecars and gateways of some.
func (s *trialOfSamples) deploy() {
	s.c.Apply(s.t, s.ns, ingress)
	pods := s.pods()
	s.ingress = pods["ingress"].Status.PodIP
	for name, p := range pods {
		for _, c := range p.Spec.Containers {
			for _, port := range c.Ports {
				s.application(name, fmt.Sprintf("%s:%d", p.Status.PodIP, port.ContainerPort))
			}
		}
	}
	curl := pods["curl-"]
	s.client = curl.Status.PodIP + ":9080"
	s.c.Apply(s.t, s.ns, fmt.Sprintf(callsOfCurl, curl.Status.PodIP))
	for _, name := range withSidecar {
		var more []string
		if name == "curl-" {
			more = []string{"--interception-mode", "NONE"}
		}
		s.proxy(pods[name], more...)
	}
	for _, router := range []string{"ingress", "bookinfo-gateway"} {
		s.proxy(pods[router], "--type", "router")
	}
	s.c.Eventually(s.t, "all proxies are connected", func(context.Context) error {
		var list debug.ProxyList
		if err := s.page("/debug/proxies", &list); err != nil {
			return err
		}
		s.streams = map[string]time.Time{}
		for i := range list.Proxies {
			s.streams[nameOf(&list.Proxies[i])] = list.Proxies[i].Connected
		}
		if want := len(withSidecar) + 2; len(s.streams) != want {
			return fmt.Errorf("%d of %d are: %v", len(s.streams), want, maps.Keys(s.streams))
		}
		return s.settled()
	})
}

// pods returns the running Pods, by labels app and version, or by name if they have none.
func (s *trialOfSamples) pods() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	s.c.Eventually(s.t, "all Pods run", func(ctx context.Context) error {
		clear(out)
		deployments, err := s.c.Client.AppsV1().Deployments(s.ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ns := range []string{s.ns, "istio-system"} {
			list, err := s.c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				p := &list.Items[i]
				if p.Status.PodIP == "" {
					return errors.New(p.Name + " has no address")
				}
				name := p.Name
				if len(p.OwnerReferences) > 0 {
					name = p.Labels["app"] + "-" + p.Labels["version"]
				}
				out[name] = p
			}
		}
		if want := len(deployments.Items) + 2; len(out) != want {
			return fmt.Errorf("%d of %d do", len(out), want)
		}
		return nil
	})
	return out
}

// application answers every caller with its name, until the test ends.
func (s *trialOfSamples) application(name, address string) {
	ln, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", address)
	require.NoError(s.t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-App", name)
	})}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(ln) })
	s.t.Cleanup(func() { _ = server.Close(); running.Wait() })
}

// proxy runs a Pod's Envoy with the Pod's identity, until the test ends.
func (s *trialOfSamples) proxy(p *corev1.Pod, more ...string) {
	token := filepath.Join(s.t.TempDir(), "token")
	require.NoError(s.t, os.WriteFile(token, []byte(tokenOf(s.t, s.c, p.Namespace, p.Spec.ServiceAccountName, "istio-ca")), 0o600))
	var labels []string
	for k, v := range p.Labels {
		labels = append(labels, k+"="+v)
	}
	args := append([]string{
		"agent", "--name", p.Name, "--namespace", p.Namespace, "--ip", p.Status.PodIP, "--labels", strings.Join(labels, ","),
		"--service-account", p.Spec.ServiceAccountName, "--xds-address", s.xds, "--xds-plaintext=false", "--xds-root-cert", s.roots,
		"--xds-server-name", "istiod.istio-system.svc", "--token-file", token,
		"--drain-time", "1ms", "--leave-timeout", "0", "--concurrency", "1",
	}, more...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		status, out := askUntil(ctx, args...)
		if s.t.Failed() || status != 0 {
			s.t.Logf("%s ended with status %d; its output:\n%s", p.Name, status, out)
		}
	})
	s.t.Cleanup(func() { cancel(); running.Wait() })
}

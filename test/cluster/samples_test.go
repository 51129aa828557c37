package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/kubetest"
)

var samples = flag.String("samples", "", "folder samples of Istio's repository, which this one has no copy of")

// TestIstioSamples applies Istio's own samples to an API server, file by file. Real Envoys with the identities of their
// Pods, and two routers, must accept the result without a refusal or a new connection. Where a file routes calls, calls
// must take those routes.
func TestIstioSamples(t *testing.T) {
	if *samples == "" {
		t.Skip("name the samples of a checkout of Istio: go test ./test/cluster -run TestIstioSamples -samples=istio/samples")
	}
	c := kubetest.Start(t, "--pod-cidr=127.77.0.0/16")
	s := &trialOfSamples{t: t, c: c, ns: c.Namespace(t), unchecked: maps.Clone(checkedSamples)}
	s.controlPlane()
	for _, f := range deployedSamples {
		s.apply(f)
	}
	s.deploy()
	for _, f := range s.files("bookinfo/networking/*.yaml", "*/*gateway.yaml") {
		s.serve(f)
		if f == "bookinfo/networking/fault-injection-details-v1.yaml" {
			s.apply("bookinfo/networking/destination-rule-all.yaml") // it has left details without v2
		}
	}
	s.same()
	s.forget("virtualservices", "destinationrules")
	for _, f := range s.files("bookinfo/gateway-api/*.yaml", "helloworld/gateway-api/*.yaml", "httpbin/gateway-api/*.yaml") {
		s.serve(f)
	}
	s.same()
	require.Empty(t, s.unchecked, "files that are not there any more")
	require.Empty(t, s.metric("pilot_total_xds_rejects"), "something was refused meanwhile")
}

// deployedSamples are Services, Deployments and accounts.
var deployedSamples = []string{
	"bookinfo/platform/kube/bookinfo.yaml", "bookinfo/platform/kube/bookinfo-versions.yaml",
	"helloworld/helloworld.yaml", "httpbin/httpbin.yaml", "curl/curl.yaml",
}

// trialOfSamples is a control plane, the samples' Pods, and the Envoys of some.
type trialOfSamples struct {
	t       *testing.T
	c       *kubetest.Cluster
	ns      string
	xds     string               // where sidecars get certificates and configuration
	url     string               // of the debug pages
	roots   string               // file
	client  string               // where the sidecar of the Pod curl accepts calls of its application
	ingress string               // address of the router that Istio's Gateways select
	streams map[string]time.Time // when each proxy connected, by name.namespace

	unchecked map[string][]expectation // samples of checkedSamples that are still to be applied
}

// files returns the samples that match, by their names below the folder.
func (s *trialOfSamples) files(patterns ...string) []string {
	var out []string
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(*samples, p))
		require.NoError(s.t, err)
		require.NotEmpty(s.t, found, p)
		for _, f := range found {
			name, err := filepath.Rel(*samples, f)
			require.NoError(s.t, err)
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// apply applies a file and waits until all proxies have it.
func (s *trialOfSamples) apply(file string) {
	text, err := os.ReadFile(filepath.Join(*samples, file))
	require.NoError(s.t, err)
	placed := s.placed(string(text))
	s.c.Apply(s.t, s.ns, placed)
	path := filepath.Join(s.t.TempDir(), "sample.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(placed), 0o600))
	status, out := ask(s.t, "wait", path, "--timeout", "1m", "--address", s.url)
	s.t.Logf("%s: %s", file, out)
	require.Zero(s.t, status, file)
}

// serve applies a file and checks its effects.
func (s *trialOfSamples) serve(file string) {
	s.apply(file)
	s.c.Eventually(s.t, file+" is at all proxies, of which none refuses anything or was away", func(context.Context) error { return s.settled() })
	for _, e := range s.unchecked[file] {
		s.check(file, e)
	}
	delete(s.unchecked, file)
}

// settled returns what is wrong with the proxies, or nil.
func (s *trialOfSamples) settled() error {
	var list debug.ProxyList
	if err := s.page("/debug/proxies", &list); err != nil {
		return err
	}
	var wrong []error
	away := make(map[string]bool)
	for name := range s.streams {
		away[name] = true
	}
	for i := range list.Proxies {
		p := &list.Proxies[i]
		name := nameOf(p)
		delete(away, name)
		if p.Pending > 0 {
			wrong = append(wrong, fmt.Errorf("%s is %d revisions behind", name, p.Pending))
		}
		if since := s.streams[name]; !since.Equal(p.Connected) {
			wrong = append(wrong, fmt.Errorf("%s was connected at %s, and is since %s", name, since, p.Connected))
		}
		for _, typ := range p.Types {
			for _, h := range typ.Held {
				wrong = append(wrong, fmt.Errorf("%s refuses %s %s: %s", name, typ.Type, h.Name, h.Message))
			}
		}
	}
	for name := range away {
		wrong = append(wrong, errors.New(name+" is not connected"))
	}
	return errors.Join(wrong...)
}

func nameOf(p *server.ProxyState) string { return p.Name + "." + p.Namespace }

// same checks that each Envoy has the expected resources.
func (s *trialOfSamples) same() {
	for name := range s.streams {
		status, out := ask(s.t, "proxy-config", "all", name, "--address", s.url)
		require.Zero(s.t, status, out)
		require.Regexp(s.t, `ACKed +same\n`, out)
		require.NotRegexp(s.t, ` (differs|missing|warming|extra|\?)\n`, out, name)
	}
}

// forget deletes all objects of kinds: the samples of two APIs route the same calls.
func (s *trialOfSamples) forget(kinds ...string) {
	for _, kind := range kinds {
		r := schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: kind}
		require.NoError(s.t, s.c.Dynamic.Resource(r).Namespace(s.ns).DeleteCollection(s.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
}

// placed returns a sample with the namespace, which samples do not name. Gateways get the address of their router,
// because others on this machine may use the same ports.
func (s *trialOfSamples) placed(text string) string {
	text = strings.ReplaceAll(text, "\n  servers:\n  - port:", "\n  servers:\n  - bind: "+s.ingress+"\n    port:")
	docs := strings.Split("\n"+text, "\n---")
	for i, d := range docs {
		if !strings.Contains(d, "\n  namespace: ") {
			docs[i] = strings.ReplaceAll(d, "\nmetadata:\n", fmt.Sprintf("\nmetadata:\n  namespace: %s\n", s.ns))
		}
	}
	return strings.Join(docs, "\n---")
}

package meshtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
)

const sample = `Says what it is about.
-- input.yaml --
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: pods, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: pods-1, namespace: shop, labels: {kubernetes.io/service-name: pods}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [10.2.0.9]}]
-- input-more.yaml --
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: e, namespace: shop}
spec: {hosts: [e.example.com], addresses: [240.0.0.1], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
-- mesh.yaml --
outboundTrafficPolicy: REGISTRY_ONLY
-- dns.yaml --
known.example.com: 192.0.2.1
-- proxy.yaml --
- {name: a, namespace: shop}
- {name: b, namespace: other, ip: 10.99.1.1, interception: NONE, labels: {app: b}}
-- calls.yaml --
- call: PUT http://web/x?y=1
- call: {url: "https://known.example.com:8443/"}
- {proxy: b, call: http://web.shop:80/}
- {call: {to: "10.0.0.1:1", protocol: tcp, silent: true}}
`

func load(t *testing.T, text string) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.txtar")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return Load(path)
}

func TestLoad(t *testing.T) {
	f, err := load(t, sample)
	require.NoError(t, err)
	require.Equal(t, "x", f.Name)
	require.Len(t, f.Objects, 4)
	require.Equal(t, "input.yaml:5", f.Objects[1].Metadata().Origin)
	require.Equal(t, model.OutboundRegistryOnly, f.Mesh.Outbound)

	p := f.Proxies[1].Model(f.Mesh.Domain)
	require.Equal(t, "sidecar~10.99.1.1~b.other~other.svc.cluster.local", p.ID)
	require.Equal(t, model.InterceptNone, p.Interception)

	require.Equal(t, simulate.Call{
		To: "10.1.0.1:80", Protocol: simulate.HTTP, Method: "PUT", Path: "/x?y=1", Host: "web",
	}, f.Calls[0].Call.Call)
	require.Equal(t, simulate.Call{
		To: "192.0.2.1:8443", Protocol: simulate.HTTPS, Path: "/", Host: "known.example.com:8443", SNI: "known.example.com",
	}, f.Calls[1].Call.Call)
	require.Equal(t, "127.0.0.1:80", f.Calls[2].Call.To)
	require.True(t, f.Calls[2].Call.Direct, "without interception the sidecar itself is called")
	require.True(t, f.Calls[3].Call.Silent)
}

func TestNamesAreResolvedAsByApplications(t *testing.T) {
	f, err := load(t, sample)
	require.NoError(t, err)
	for name, want := range map[string]string{
		"web": "10.1.0.1", "web.shop": "10.1.0.1", "web.shop.svc": "10.1.0.1", "WEB.shop.svc.cluster.local": "10.1.0.1",
		"pods": "10.2.0.9", "e.example.com": "240.0.0.1", "192.0.2.7": "192.0.2.7", "known.example.com": "192.0.2.1",
		"unknown": elsewhere, "web.other": elsewhere,
	} {
		require.Equal(t, want, f.resolve(f.Proxies[0], name), name)
	}
}

func TestLoadRefusesMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"-- x.yaml --\n":                          "is not a part of a test",
		"-- calls.yaml --\n":                      "has no proxy.yaml",
		"-- proxy.yaml --\nname: a\nlables: {}\n": "lables",
		"-- want/everything.yaml --\n":            "want a golden of",
		"-- calls.yaml --\n- {call: {pfad: x}}\n": "pfad",
		"-- proxy.yaml --\n{}\n-- calls.yaml --\n- {proxy: x, call: http://a/}\n": `no proxy is named "x"`,
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, want)
	}
}

// TestCorpusIsValid checks the tests themselves: input decodes without errors except those that a test expects, and
// each call expects something.
func TestCorpusIsValid(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		f, err := Load(path)
		if err != nil {
			t.Error(err)
			continue
		}
		require.NotEmpty(t, f.Comment, path)
		same(t, f.Name+": problems", f.problems, f.wantProblems)
		for _, c := range f.Calls {
			require.NotNil(t, c.Want, "%s: %s", f.Name, c.Name)
		}
	}
}

package gatewaydeploy

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// TestPortNamesAreDistinct checks names of listeners whose ports want the same name.
func TestPortNamesAreDistinct(t *testing.T) {
	long := strings.Repeat("a", 253)
	rows := map[string][]listener{
		"one name, many ports": nil,
		"dots":                 {{"a.b", 80, "HTTP"}, {"a-b", 81, "HTTP"}, {"a-b-81", 82, "HTTP"}},
		"nothing is left":      {{"...", 80, "HTTP"}, {"..", 81, "HTTP"}},
		"of the status":        {{"status-port", 80, "HTTP"}, {"status.port", 81, "HTTP"}},
	}
	for i := range 2000 {
		rows["one name, many ports"] = append(rows["one name, many ports"], listener{long, int32(i + 1), "TCP"})
	}
	// Each name of a listener is what the next one would get.
	taken := []listener{{"x", 9, "TCP"}, {"x", 9, "UDP"}}
	for i, suffix := 0, "-9"; i < 70; i, suffix = i+1, suffix+"x" {
		taken = append([]listener{{"x" + suffix, int32(100 + i), "TCP"}, {suffix[1:], int32(300 + i), "TCP"}}, taken...)
	}
	rows["all suffixes"] = taken
	for name, listeners := range rows {
		t.Run(name, func(t *testing.T) {
			names := map[string]bool{}
			for _, p := range servicePorts(listeners) {
				require.False(t, names[p.Name], p.Name)
				names[p.Name] = true
				require.Regexp(t, `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, p.Name)
			}
			require.Len(t, names, len(listeners)+1)
		})
	}
}

// gatewayOf decodes a Gateway.
func gatewayOf(t testing.TB, spec string) *gateway {
	t.Helper()
	g := &gateway{}
	g.Name, g.Namespace = "web", "shop"
	require.NoError(t, yaml.Unmarshal([]byte(spec), &g.Spec))
	return g
}

// TestOverlaysThatCannotBeMerged checks patches for which the merge of Kubernetes panics.
func TestOverlaysThatCannotBeMerged(t *testing.T) {
	for name, patch := range map[string]string{
		"null in a list":           "spec: {template: {spec: {containers: [null]}}}",
		"text in a list":           "spec: {template: {spec: {containers: [{name: a}, b]}}}",
		"null among ports":         "spec: {template: {spec: {containers: [{name: istio-proxy, ports: [null, null]}]}}}",
		"keys are not comparable":  "metadata: {$retainKeys: [{a: 1}]}",
		"a directive out of place": "metadata: {labels: {$patch: replace}}",
	} {
		t.Run(name, func(t *testing.T) {
			config := inject.Default()
			require.NoError(t, config.Prepare())
			p, err := planOf(gatewayOf(t, "gatewayClassName: istio"), nil)
			require.NoError(t, err)
			_, err = p.render(config, []overlay{{"ConfigMap shop/params", map[string]string{"deployment": patch}}})
			var about unusableError
			require.ErrorAs(t, err, &about)
			require.ErrorContains(t, err, "ConfigMap shop/params: data[deployment]: ")
		})
	}
}

// reported records the states of Gateways.
type reported map[model.Key]*status.Deployment

func (r reported) SetDeployment(k model.Key, d *status.Deployment) { r[k] = d }
func (r reported) ClearDeployments()                               { clear(r) }

// panicking returns a term in which reconciliations panic.
func panicking(counted *int) (*term, reported) {
	states := reported{}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[name](firstRetry, longestRetry)
	return &term{
		Controller: &Controller{
			Snapshot: func() *store.Snapshot { panic("no snapshot") }, Statuses: states, Panicked: func() { *counted++ },
			Log: slog.New(slog.DiscardHandler),
		},
		queue: workqueue.NewTypedRateLimitingQueue(limiter), logged: map[name]string{},
	}, states
}

// TestPanicIsAStatus checks that the Gateway whose deployment panics reports it.
func TestPanicIsAStatus(t *testing.T) {
	counted := 0
	term, states := panicking(&counted)
	defer term.queue.ShutDown()
	g := gatewayOf(t, "gatewayClassName: istio")
	_, err := term.deploy(t.Context(), g)
	require.ErrorContains(t, err, "internal error: no snapshot")
	require.Contains(t, states[g.key()].Failure, "internal error: no snapshot")
	require.Equal(t, 1, counted)
}

// TestPanicStopsNoOtherGateway checks that the queue goes on after a panic, and tries the Gateway again.
func TestPanicStopsNoOtherGateway(t *testing.T) {
	counted := 0
	term, _ := panicking(&counted) // without a client, each reconciliation panics
	defer term.queue.ShutDown()
	term.add([]name{{"shop", "web"}, {"shop", "other"}})
	require.True(t, term.next(t.Context()))
	require.True(t, term.next(t.Context()))
	require.Equal(t, 2, counted)
	require.Equal(t, 1, term.queue.NumRequeues(name{"shop", "web"}))
}

// FuzzRender renders Gateways with patches. The result is an object or an error.
func FuzzRender(f *testing.F) {
	f.Add("gatewayClassName: istio\nlisteners: [{name: a.b, port: 80, protocol: HTTP}]", "deployment", "spec: {replicas: 2}")
	f.Add("gatewayClassName: istio\ninfrastructure: {annotations: {proxy.istio.io/config: '{}'}}", "service", "spec: {ports: [null]}")
	f.Add("{gatewayClassName: istio, addresses: [{value: 192.0.2.1}]}", "podDisruptionBudget", "$patch: delete")
	config := inject.Default()
	require.NoError(f, config.Prepare())
	f.Fuzz(func(t *testing.T, spec, key, patch string) {
		g := &gateway{}
		g.Name, g.Namespace = "web", "shop"
		if yaml.Unmarshal([]byte(spec), &g.Spec) != nil {
			t.Skip()
		}
		p, err := planOf(g, g.Spec.Listeners)
		if err != nil {
			return
		}
		objects, err := p.render(config, []overlay{{"ConfigMap shop/params", map[string]string{key: patch}}})
		require.True(t, err != nil || len(objects) >= 3)
	})
}

package agent

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

func minimal() Config {
	return Config{Workload: workload.Workload{Name: "a", IPs: []string{"127.0.10.3"}}, XDS: XDS{Plaintext: true}}
}

// annotated sets the annotation proxy.istio.io/config.
func annotated(text string) func(*Config) {
	return func(c *Config) { c.Workload.Annotations = map[string]string{ProxyConfigAnnotation: text} }
}

func TestConcurrencyPrecedence(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   int
	}{
		{"default", func(*Config) {}, DefaultConcurrency},
		{"mesh's ProxyConfig", func(c *Config) { c.ProxyConfig = &meshconfig.ProxyConfig{Concurrency: wrapperspb.Int32(3)} }, 3},
		{"annotation beats it", func(c *Config) {
			c.ProxyConfig = &meshconfig.ProxyConfig{Concurrency: wrapperspb.Int32(3)}
			annotated("concurrency: 4")(c)
		}, 4},
		{"annotation 0", annotated("concurrency: 0"), 0},
		{"annotation without it", annotated("drainDuration: 9s"), DefaultConcurrency},
		{"empty annotation", annotated(""), DefaultConcurrency},
		{"flag beats all", func(c *Config) { annotated("concurrency: 4")(c); c.Concurrency = ptr(0) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := minimal()
			tt.change(&c)
			s, err := c.resolve()
			require.NoError(t, err)
			require.Equal(t, tt.want, s.concurrency)
		})
	}
}

func TestDrainTimes(t *testing.T) {
	tests := []struct {
		name                string
		change              func(*Config)
		sidecar, oneListenr time.Duration
	}{
		{"default", func(*Config) {}, 5 * time.Second, 45 * time.Second},
		{"annotation", annotated("{drainDuration: 10s, terminationDrainDuration: 7s}"), 7 * time.Second, 10 * time.Second},
		{"flag", func(c *Config) { annotated("terminationDrainDuration: 7s")(c); c.DrainTime = ptr(time.Duration(0)) }, 0, 45 * time.Second},
		{"listeners stay open as long as the sidecar drains", func(c *Config) { c.DrainTime = ptr(time.Minute) }, time.Minute, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := minimal()
			tt.change(&c)
			s, err := c.resolve()
			require.NoError(t, err)
			require.Equal(t, tt.sidecar, s.drainTime)
			require.Equal(t, tt.oneListenr, s.listenerDrain)
		})
	}
}

func TestAddresses(t *testing.T) {
	tests := []struct {
		name        string
		change      func(*Config)
		bind, admin string
	}{
		{"loopback", func(*Config) {}, "127.0.10.3", "127.0.10.3:15000"},
		{"pod", func(c *Config) { c.Workload.IPs = []string{"10.0.0.1"} }, "0.0.0.0", "127.0.0.1:15000"},
		{"IPv6 pod", func(c *Config) { c.Workload.IPs = []string{"fd00::1"} }, "::", "[::1]:15000"},
		{"IPv6 loopback", func(c *Config) { c.Workload.IPs = []string{"::1"} }, "::1", "[::1]:15000"},
		{"bind flag", func(c *Config) { c.BindAddress = "127.0.10.9" }, "127.0.10.9", "127.0.10.9:15000"},
		{"admin flag and port", func(c *Config) { c.AdminAddress = "127.0.0.1"; c.Ports.Admin = 7 }, "127.0.10.3", "127.0.0.1:7"},
		{"port by annotation", annotated("proxyAdminPort: 16000"), "127.0.10.3", "127.0.10.3:16000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := minimal()
			tt.change(&c)
			s, err := c.resolve()
			require.NoError(t, err)
			require.Equal(t, tt.bind, s.bind)
			require.Equal(t, tt.admin, s.adminAddr)
		})
	}
}

// TestConfigErrors checks that each error names the mistake and the flag or annotation to correct.
func TestConfigErrors(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"no name", func(c *Config) { c.Workload.Name = "" }, []string{"no name", "--name", "POD_NAME", "--pod"}},
		{"no address", func(c *Config) { c.Workload.IPs = nil }, []string{"no IP address", "--ip", "INSTANCE_IP", "status.podIP"}},
		{"bad address", func(c *Config) { c.Workload.IPs = []string{"localhost"} }, []string{`invalid IP address "localhost"`, "--ip"}},
		{"xds without port", func(c *Config) { c.XDS.Address = "istiod" }, []string{`"istiod"`, "missing port", "set --xds-address to host:port"}},
		{"xds without host", func(c *Config) { c.XDS.Address = ":15010" }, []string{"no host", "--xds-address"}},
		{"xds with a bad port", func(c *Config) { c.XDS.Address = "a:99999" }, []string{`"99999"`, "--xds-address"}},
		{"buckets that are not JSON", func(c *Config) { c.Workload.Annotations = map[string]string{bootstrap.BucketsAnnotation: "{"} }, []string{bootstrap.BucketsAnnotation, "not a JSON"}},
		{"buckets that shrink", func(c *Config) {
			c.Workload.Annotations = map[string]string{bootstrap.BucketsAnnotation: `{"istio":[5,1]}`}
		}, []string{bootstrap.BucketsAnnotation, `"istio"`, "increasing order"}},
		{"no buckets", func(c *Config) {
			c.Workload.Annotations = map[string]string{bootstrap.BucketsAnnotation: `{"istio":[]}`}
		}, []string{bootstrap.BucketsAnnotation, "no buckets"}},
		{"TLS without roots", func(c *Config) { c.XDS.Plaintext = false }, []string{"--xds-root-cert", "--xds-plaintext"}},
		{"TLS with missing roots", func(c *Config) { c.XDS = XDS{RootCert: "/nowhere/ca.pem"} }, []string{"/nowhere/ca.pem", "--xds-root-cert"}},
		{"interception", func(c *Config) { c.Interception = "MAGIC" }, []string{`"MAGIC"`, "REDIRECT, TPROXY, NONE", "--interception-mode"}},
		{"interception by annotation", func(c *Config) {
			c.Workload.Annotations = map[string]string{model.AnnotationInterception: "OFF"}
		}, []string{`"OFF"`, model.AnnotationInterception}},
		{"type", func(c *Config) { c.Type = "waypoint" }, []string{`"waypoint"`, "use sidecar or router", "--type"}},
		{"a router that intercepts", func(c *Config) { c.Type, c.Interception = model.ProxyRouter, model.InterceptTProxy }, []string{"no application", "--interception-mode"}},
		{"concurrency", func(c *Config) { c.Concurrency = ptr(-1) }, []string{"-1", "--concurrency"}},
		{"huge concurrency", annotated("concurrency: 100000"), []string{"100000", "--concurrency", ProxyConfigAnnotation}},
		{"annotation of a wrong type", annotated("concurrency: many"), []string{"annotation " + ProxyConfigAnnotation + " of pod a", `"many"`}},
		{"annotation that is not YAML", annotated("{"), []string{"annotation", "invalid YAML"}},
		{"negative drain", func(c *Config) { c.DrainTime = ptr(-time.Second) }, []string{"invalid drain time", "--drain-time (-1s)"}},
		{"bind", func(c *Config) { c.BindAddress = "lo" }, []string{`"lo"`, "--bind-address"}},
		{"admin", func(c *Config) { c.AdminAddress = "lo" }, []string{`"lo"`, "--admin-address"}},
		{"ports clash", func(c *Config) { c.Ports.Admin = 15020 }, []string{"--admin-port and --status-port are both 15020"}},
		{"flush", annotated("fileFlushInterval: 0.0005s"), []string{"fileFlushInterval 500µs", ProxyConfigAnnotation, "1ms"}},
		{"no flush", annotated("fileFlushInterval: 0s"), []string{"fileFlushInterval 0s", ProxyConfigAnnotation, "1ms"}},
		{"port by annotation", annotated("statusPort: 70000"), []string{"invalid port 70000", ProxyConfigAnnotation}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := minimal()
			tt.change(&c)
			_, err := Bootstrap(c)
			require.Error(t, err)
			for _, w := range tt.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

// TestWarnsAboutProxyConfigWithoutEffect checks that the warning lists the fields.
func TestWarnsAboutProxyConfigWithoutEffect(t *testing.T) {
	logged := func(text string) string {
		var out bytes.Buffer
		c := minimal()
		c.Log = slog.New(slog.NewTextHandler(&out, nil))
		annotated(text)(&c)
		_, err := c.resolve()
		require.NoError(t, err)
		return out.String()
	}
	require.NotContains(t, logged("concurrency: 2\nproxyMetadata: {A: b}\nproxyHeaders: {requestId: {disabled: true}, preserveHttp1HeaderCase: true}"), "no effect")
	require.NotContains(t, logged("tracing: {sampling: 1, customTags: {a: {literal: {value: b}}}}"), "WARN")
	require.Contains(t, logged("tracing: {sampling: 1, zipkin: {address: 'a:1'}}"), "fields=tracing.zipkin")
	require.Contains(t, logged("tracing: {sampling: 101}"), "sampling=101")
	require.Contains(t, logged("{concurency: 2, drainDuration: 1m}"), `did you mean \"concurrency\"?`)
	require.Contains(t, logged("concurrency: 2\nstatsdUdpAddress: a:1\nproxyBootstrapTemplatePath: /b"),
		`have no effect in Moonsail yet" fields="proxyBootstrapTemplatePath, statsdUdpAddress"`)
}

// TestWarnsAboutAnnotationsWithoutEffect checks that the warning lists the annotations.
func TestWarnsAboutAnnotationsWithoutEffect(t *testing.T) {
	var out bytes.Buffer
	c := minimal()
	c.Log = slog.New(slog.NewTextHandler(&out, nil))
	c.Workload.Annotations = map[string]string{"sidecar.istio.io/statsFlushInterval": "1s", "sidecar.istio.io/extraStatTags": "a", "sidecar.istio.io/bootstrapOverride": "b"}
	_, err := c.resolve()
	require.NoError(t, err)
	require.Contains(t, out.String(), `annotations="sidecar.istio.io/bootstrapOverride, sidecar.istio.io/statsFlushInterval"`)
}

func TestNodeLocality(t *testing.T) {
	tests := []struct {
		labels     map[string]string
		configured model.Locality
		want       string
	}{
		{nil, model.Locality{}, ""},
		{map[string]string{"istio-locality": "eu.eu-1"}, model.Locality{}, "eu/eu-1"},
		{map[string]string{"topology.istio.io/locality": "us/a/b", "istio-locality": "eu"}, model.Locality{}, "us/a/b"},
		{map[string]string{"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}, model.Locality{}, "r/z"},
		{map[string]string{"istio-locality": "eu"}, model.ParseLocality("node/z"), "node/z"},
	}
	for _, tt := range tests {
		c := minimal()
		c.Workload.Labels, c.Workload.Locality = tt.labels, tt.configured
		s, err := c.resolve()
		require.NoError(t, err)
		require.Equal(t, tt.want, s.node.Locality.String())
	}
}

// TestDeepLocality checks that a label with too many parts causes a warning, but no error.
func TestDeepLocality(t *testing.T) {
	var out bytes.Buffer
	c := minimal()
	c.Log = slog.New(slog.NewTextHandler(&out, nil))
	c.Workload.Labels = map[string]string{"istio-locality": "eu.eu-1.a.rack-3"}
	s, err := c.resolve()
	require.NoError(t, err)
	require.Equal(t, "eu/eu-1/a/rack-3", s.node.Locality.String())
	require.Contains(t, out.String(), `label=istio-locality error="\"eu/eu-1/a/rack-3\" has more than three parts: write region/zone/subzone`)
}

func TestRouterNode(t *testing.T) {
	c := minimal()
	c.Type = model.ProxyRouter
	c.Workload.Annotations = map[string]string{model.AnnotationInterception: "TPROXY"} // of a sidecar
	s, err := c.resolve()
	require.NoError(t, err)
	require.Regexp(t, "^router~", s.node.ID)
	require.Equal(t, "NONE", s.node.Metadata["INTERCEPTION_MODE"])
}

// TestCapturedDNSIsInMetadata checks the metadata by which the control plane learns that applications get the mesh's
// addresses.
func TestCapturedDNSIsInMetadata(t *testing.T) {
	for _, capture := range []string{"", "true"} {
		c := minimal()
		c.Workload.IPs, c.Intercept.Settings.CaptureDNS = []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, capture
		s, err := c.resolve()
		require.NoError(t, err)
		got, _ := s.node.Metadata["DNS_CAPTURE"].(string)
		require.Equal(t, capture, got)
		node, err := (&controlPlane{settings: s}).node("dns", agentapi.MetaNames)
		require.NoError(t, err)
		require.Equal(t, capture, node.Metadata.Fields["DNS_CAPTURE"].GetStringValue())
		require.Equal(t, "0.0.0.0,::", node.Metadata.Fields["INSTANCE_IPS"].GetStringValue(), "the IP families, not the addresses")
		require.Regexp(t, "^sidecar~0.0.0.0~", node.Id)

		s.Workload.IPs = []string{"fd00::1"}
		node, err = (&controlPlane{settings: s}).node("dns", agentapi.MetaNames)
		require.NoError(t, err)
		require.Equal(t, "::", node.Metadata.Fields["INSTANCE_IPS"].GetStringValue())
		require.Regexp(t, "^sidecar~::~", node.Id, "no address of the other family")
	}
}

// TestServiceOfSpans checks that spans have the workload's service whatever attributes the user adds, unless these have a
// service.
func TestServiceOfSpans(t *testing.T) {
	for name, tc := range map[string]struct{ attributes, want string }{
		"default":         {"", "service.name=istio-proxy.default"},
		"more attributes": {"deployment.environment=prod,a=b", "deployment.environment=prod,a=b,service.name=istio-proxy.default"},
		"final comma":     {"a=b, ", "a=b,service.name=istio-proxy.default"},
		"another service": {"a=b, service.name=mine", "a=b, service.name=mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", tc.attributes)
			c := minimal()
			s, err := c.resolve()
			require.NoError(t, err)
			require.Contains(t, s.telemetryEnv(), "OTEL_RESOURCE_ATTRIBUTES="+tc.want)
		})
	}
}

// TestNodeCluster checks the name of a workload's service for Envoy, which is the service of spans.
func TestNodeCluster(t *testing.T) {
	const canonical = "service.istio.io/canonical-name"
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"app":            {map[string]string{"app": "a", "app.kubernetes.io/name": "b", canonical: "c"}, "a.shop"},
		"name":           {map[string]string{"app.kubernetes.io/name": "b", canonical: "c"}, "b.shop"},
		"canonical name": {map[string]string{canonical: "c"}, "c.shop"},
		"workload":       {nil, "orders-v2.shop"},
	} {
		t.Run(name, func(t *testing.T) {
			c := minimal()
			c.Workload.Namespace, c.Workload.WorkloadName, c.Workload.Labels = "shop", "orders-v2", tc.labels
			s, err := c.resolve()
			require.NoError(t, err)
			require.Equal(t, tc.want, s.node.Cluster)
		})
	}
}

package caller_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestResolve checks names as applications write them.
func TestResolve(t *testing.T) {
	s := store.New()
	for _, text := range []string{
		"{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.3, ports: [{name: http, port: 80}]}}",
		"{apiVersion: v1, kind: Service, metadata: {name: mysql, namespace: data}, spec: {clusterIP: None, selector: {app: mysql}, ports: [{name: tcp, port: 3306}]}}",
		`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: mysql-x, namespace: data, labels: {kubernetes.io/service-name: mysql}}, addressType: IPv4,
ports: [{name: tcp, port: 3306}], endpoints: [
{addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: mysql-0, namespace: data}},
{addresses: [10.1.0.2], conditions: {ready: true}, targetRef: {kind: Pod, name: mysql-1, namespace: data}},
{addresses: [10.1.0.3], conditions: {ready: false}, targetRef: {kind: Pod, name: mysql-2, namespace: data}}]}`,
		`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}, addressType: IPv4,
ports: [{name: http, port: 80}], endpoints: [{addresses: [10.1.0.4], conditions: {ready: true}, targetRef: {kind: Pod, name: web-0, namespace: shop}}]}`,
	} {
		o, problems := config.Decoder{}.FromYAML([]byte(text))
		require.NotNil(t, o, problems)
		s.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	r := caller.NewResolver(nil, s.Snapshot())
	p := &model.Proxy{Name: "web-1", Namespace: "shop", DNSDomain: "shop.svc.cluster.local"}
	for name, want := range map[string]struct {
		address string
		host    model.Host
		known   bool
	}{
		"web":                                  {"10.0.0.3", "web.shop.svc.cluster.local", true},
		"mysql.data":                           {"10.1.0.1", "mysql.data.svc.cluster.local", true},
		"mysql-1.mysql.data":                   {"10.1.0.2", "mysql-1.mysql.data.svc.cluster.local", true},
		"mysql-1.mysql.data.svc.cluster.local": {"10.1.0.2", "mysql-1.mysql.data.svc.cluster.local", true},
		"mysql-1.mysql":                        {caller.Elsewhere, "mysql-1.mysql", false},      // of the caller's namespace
		"mysql-2.mysql.data":                   {caller.Elsewhere, "mysql-2.mysql.data", false}, // not ready
		"mysql-7.mysql.data":                   {caller.Elsewhere, "mysql-7.mysql.data", false},
		"web-0.web":                            {caller.Elsewhere, "web-0.web", false}, // not headless
		"10.1.0.2":                             {"10.1.0.2", "10.1.0.2", false},
		"example.com":                          {caller.Elsewhere, "example.com", false},
	} {
		t.Run(name, func(t *testing.T) {
			address, host, known := r.Resolve(p, name)
			require.Equal(t, want.address, address)
			require.Equal(t, want.host, host)
			require.Equal(t, want.known, known)
		})
	}
}

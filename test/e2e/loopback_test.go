package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/meshtest"
)

// compile returns everything that a proxy of a test file gets.
func compile(t *testing.T, f *meshtest.File, p *model.Proxy) resources {
	t.Helper()
	return compileKeeping(t, f, p, "")
}

// compileKeeping is compile for a proxy that has had some route configurations in route shards.
func compileKeeping(t *testing.T, f *meshtest.File, p *model.Proxy, kept derive.ShardedRoutes) resources {
	t.Helper()
	r, failures := engine.CompileSharded(f.Mesh, f.Objects, p, fewBuckets(1), kept)
	// A resource is served without the patches that cannot be applied to it.
	failures = slices.DeleteFunc(failures, func(f engine.Failure) bool { return strings.HasSuffix(f.Error, "the patch is left out") })
	require.Empty(t, failures)
	return r
}

// rewrite applies change to the decoded resources of one type and encodes them again.
func (r resources) rewrite(t *testing.T, typ resource.Type, change func(proto.Message)) {
	t.Helper()
	r.replace(t, typ, func(m proto.Message) proto.Message {
		change(m)
		return m
	})
}

// replace replaces the resources of one type by those that by returns, under the same names.
func (r resources) replace(t *testing.T, typ resource.Type, by func(proto.Message) proto.Message) {
	t.Helper()
	for i, e := range r[typ] {
		changed, err := resource.Encode(typ, e.Name, by(decode(t, e)))
		if typ == resource.Listener && resource.UsesScopes([]byte(e.Version)) {
			changed, err = resource.EncodeScoped(e.Name, by(decode(t, e)))
		}
		require.NoError(t, err)
		changed.RouteConfigs = e.RouteConfigs
		r[typ][i] = changed
	}
}

// joinRoutes puts virtual hosts that are served separately into their route configurations.
func (r resources) joinRoutes(t *testing.T) {
	t.Helper()
	r.rewrite(t, resource.RouteConfig, func(m proto.Message) {
		rc := m.(*routev3.RouteConfiguration)
		rc.VirtualHosts = slices.DeleteFunc(rc.VirtualHosts, func(vh *routev3.VirtualHost) bool {
			return !slices.Contains(names(r[resource.VirtualHost]), vh.Name)
		})
	})
}

// loopback makes listeners bindable on any machine: the two targets of interception get a free port on loopback, and
// lead to the listeners that applications connect to themselves.
func (r resources) loopback(t *testing.T) {
	t.Helper()
	// Clusters with users' TLS settings name files, and Envoy refuses missing ones.
	r.rewrite(t, resource.Cluster, func(m proto.Message) {
		if text := text(m); strings.Contains(text, `"filename"`) {
			require.NoError(t, protojson.Unmarshal([]byte(fileNames.ReplaceAllStringFunc(text, ownFile(t))), m))
		}
	})
	r.rewrite(t, resource.Listener, func(m proto.Message) {
		l := m.(*listenerv3.Listener)
		if l.Name == "virtualOutbound" || l.Name == "virtualInbound" {
			l.Address = address("127.0.0.1", 0)
			return
		}
		l.BindToPort = wrapperspb.Bool(false)
	})
}

func address(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: ip, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

var fileNames = regexp.MustCompile(`"filename": ?"[^"]*"`)

// ownFile returns the test's key or certificate for a file name, by the name.
func ownFile(t *testing.T) func(string) string {
	t.Helper()
	return func(field string) string {
		path := certificateFile(t)
		if strings.Contains(field, "key") {
			path = keyFile(t)
		}
		return fmt.Sprintf(`"filename":%q`, path)
	}
}

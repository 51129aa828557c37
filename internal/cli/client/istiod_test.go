package client_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/cli/configure"
	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/clitest"
)

// dumpsDir has the config dumps of proxies of a real istiod.
const dumpsDir = "../../diagnose/compare/testdata/istiod"

// recordedIstiod serves what config dumps have.
type recordedIstiod struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	proxies map[string]*compare.Proxy // by node id
}

func recorded(t *testing.T) *recordedIstiod {
	t.Helper()
	out := &recordedIstiod{proxies: map[string]*compare.Proxy{}}
	paths, err := filepath.Glob(filepath.Join(dumpsDir, "*.json.gz"))
	require.NoError(t, err)
	for _, path := range paths {
		text, err := configdump.ReadFile(path)
		require.NoError(t, err)
		p, err := compare.ParseDump(text, server.ProxyOf)
		require.NoError(t, err)
		out.proxies[p.Node.ID] = p
	}
	return out
}

// StreamAggregatedResources implements the service: all resources of a type, whatever the names are.
func (s *recordedIstiod) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	var p *compare.Proxy
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.GetNode() != nil {
			p = s.proxies[r.GetNode().GetId()]
		}
		if r.GetResponseNonce() != "" {
			continue
		}
		resp := &discoveryv3.DiscoveryResponse{TypeUrl: r.GetTypeUrl(), Nonce: "1", VersionInfo: "2026-01-02T15:04:05Z/1"}
		for _, add := range []func() error{
			func() error { return pack(resp, p.World.Listeners) }, func() error { return pack(resp, p.World.Routes) },
			func() error { return pack(resp, p.World.Clusters) }, func() error { return pack(resp, p.World.Endpoints) },
		} {
			if err := add(); err != nil {
				return err
			}
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// pack adds resources to a response with their type.
func pack[M proto.Message](resp *discoveryv3.DiscoveryResponse, all []M) error {
	for _, m := range all {
		packed, err := anypb.New(m)
		if err != nil {
			return err
		}
		if packed.GetTypeUrl() == resp.GetTypeUrl() {
			resp.Resources = append(resp.Resources, packed)
		}
	}
	return nil
}

// TestCompareWithIstiodInCluster reads istiod through a port-forward, and compares it with the config dumps of the same proxies.
func TestCompareWithIstiodInCluster(t *testing.T) {
	s := newAPIServer(t)
	useKubeconfig(t, s)
	ads := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(ads, recorded(t))
	run := func(args ...string) (int, string, string) {
		return clitest.Run(t, clitest.Root(configure.Commands()...), append([]string{"compare", "--to", dumpsDir}, args...)...)
	}
	status, _, errOut := run()
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "no Pod of istiod runs")

	s.add("moonsail", "serve", nil) // must not be taken for istiod
	s.add("istiod-1", "discovery", nil)
	s.pages["istiod-1"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ads.ServeHTTP(w, r) })
	status, out, errOut := run()
	require.Equal(t, terminal.ExitOK, status, out+errOut)
	require.True(t, strings.HasPrefix(out, "istiod -> dumps in "), out)
	require.Regexp(t, `([0-9]+) of ([0-9]+) calls of 7 proxies are decided alike\n$`, out)

	status, _, errOut = run("--revision", "canary")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "--revision canary: no istiod has it: use one of default")
	s.deny = "/portforward"
	status, _, errOut = run()
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "cannot read the resources of")
}

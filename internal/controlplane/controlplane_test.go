package controlplane

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

const shopYAML = `
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.0.0.1
  ports: [{name: http, port: 80}]
`

// plane is a control plane that runs.
type plane struct {
	xds, http string
	stop      context.CancelFunc
	ended     chan error
}

func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(shopYAML), 0o600))
	return Options{
		ConfigDir: dir, XDSPlaintextAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Mesh: model.DefaultMesh(), Log: slog.New(slog.DiscardHandler),
	}
}

func start(t *testing.T, o Options) *plane {
	t.Helper()
	p := &plane{ended: make(chan error, 1)}
	addresses := make(chan [2]net.Addr, 1)
	o.Listening = func(xds, http net.Addr) { addresses <- [2]net.Addr{xds, http} }
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	t.Cleanup(p.stop)
	go func() { p.ended <- Run(ctx, o) }()
	select {
	case a := <-addresses:
		p.xds, p.http = a[0].String(), a[1].String()
	case err := <-p.ended:
		require.Fail(t, "it did not start", "%v", err)
	}
	return p
}

// end stops the control plane and returns the result of Run.
func (p *plane) end(t *testing.T) error {
	t.Helper()
	p.stop()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		require.Fail(t, "it does not end")
		return nil
	}
}

// subscribe opens a stream as a proxy and waits for its clusters.
func subscribe(t *testing.T, addr string) discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(await.Context(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		Node:    &core.Node{Id: "sidecar~10.1.0.1~web-1.shop~shop.svc.cluster.local"},
		TypeUrl: resource.Cluster.URL(),
	}))
	resp, err := stream.Recv()
	require.NoError(t, err)
	var names []string
	for _, r := range resp.Resources {
		names = append(names, r.Name)
	}
	require.Contains(t, names, "outbound|80||cart.shop.svc.cluster.local")
	return stream
}

func TestServesAndStops(t *testing.T) {
	for _, transport := range []server.Transport{server.TransportGRPC, server.TransportHTTP2} {
		t.Run(string(transport), func(t *testing.T) { servesAndStops(t, transport) })
	}
}

func servesAndStops(t *testing.T, transport server.Transport) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // it runs last, after clients are closed
	o := options(t)
	o.Transport = transport
	p := start(t, o)
	stream := subscribe(t, p.xds)
	resp, err := http.Get("http://" + p.http + "/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NotEmpty(t, body)

	require.NoError(t, p.end(t), "the end of the context is not an error")
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "the stream was cut")
	http.DefaultClient.CloseIdleConnections()
}

// TestEndsWithACause checks that a context which ends with a cause, like a signal's, is not a failure.
func TestEndsWithACause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	o := options(t)
	o.Listening = func(net.Addr, net.Addr) { cancel(os.ErrDeadlineExceeded) }
	require.NoError(t, Run(ctx, o))
}

// TestReadyAddress checks that this address serves readiness, and nothing about the mesh.
func TestReadyAddress(t *testing.T) {
	var log logtext.Buffer
	o := options(t)
	o.ReadyAddr, o.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(&log, nil))
	p := start(t, o)
	addr := regexp.MustCompile(`serving /ready" addr=(\S+)`).FindStringSubmatch(log.String())
	require.NotNil(t, addr, log.String())
	for path, want := range map[string]int{"/ready": http.StatusOK, "/metrics": http.StatusNotFound, "/debug/proxies": http.StatusNotFound} {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			resp, err := http.Get("http://" + addr[1] + path)
			if assert.NoError(c, err) {
				resp.Body.Close()
				assert.Equal(c, want, resp.StatusCode, path)
			}
		}, time.Minute, time.Millisecond)
	}
	require.NoError(t, p.end(t))
}

func TestWhatItCannotStartWith(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for name, c := range map[string]struct {
		change func(*Options)
		says   []string
	}{
		"xDS address taken":   {func(o *Options) { o.XDSPlaintextAddr = taken.Addr().String() }, []string{"--xds-plaintext-addr", taken.Addr().String()}},
		"http address taken":  {func(o *Options) { o.HTTPAddr = taken.Addr().String() }, []string{"--http-addr", taken.Addr().String()}},
		"ready address taken": {func(o *Options) { o.ReadyAddr = taken.Addr().String() }, []string{"--ready-addr", taken.Addr().String()}},
		"no address":          {func(o *Options) { o.HTTPAddr = "here" }, []string{"--http-addr", "here"}},
		"no directory":        {func(o *Options) { o.ConfigDir = "nowhere" }, []string{"file source", "nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			o := options(t)
			c.change(&o)
			err := Run(context.Background(), o)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

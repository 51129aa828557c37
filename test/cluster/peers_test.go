package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/drain"
	statuses "github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/halt"
	"github.com/moonsail/moonsail/test/kubetest"
)

const listedSecure = `
apiVersion: v1
kind: Service
metadata: {name: istiod, namespace: istio-system}
spec: {ports: [{name: https-dns, port: 15012}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: istiod-%[1]s, namespace: istio-system, labels: {kubernetes.io/service-name: istiod}}
addressType: IPv4
ports: [{name: https-dns, port: %[1]s}]
endpoints: [{addresses: [127.0.0.1], conditions: {ready: false}}]
`

// jsonCodec encodes gRPC's messages as JSON.
type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }
func (jsonCodec) Name() string                    { return "json" }

// TestDeregistrationNamesStoppedControlPlane stops one of two control planes that find each other by their Service and
// authenticate with the mesh's authority. A workload that deregisters must get an answer that names it within the
// bound, and must wait for it again when it continues.
func TestDeregistrationNamesStoppedControlPlane(t *testing.T) {
	c := kubetest.Alone(t)
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(rights))
	s := runManifest(t, c, readManifest(t, model.DefaultRevision))
	other := s.at["xDS with TLS"]
	secure := make(chan string, 1)
	runControl(t, c, func(o *controlplane.Options) {
		o.Status, o.Absence = false, time.Millisecond
		o.Replicas = controlplane.Replicas{Service: controlplane.DefaultPeerService, Every: 100 * time.Millisecond}
		o.Identity = controlplane.Identity{Addr: "127.0.0.1:0", Listening: func(a net.Addr) { secure <- a.String() }}
	})
	addr := await.From(t, secure)
	for _, addr := range []string{other, addr} {
		_, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		c.Apply(t, "", fmt.Sprintf(listedSecure, port))
	}
	ns := c.Namespace(t)
	c.Apply(t, ns, accounts)
	roots := poolOf(t, rootsOf(t, c, ns))
	certificate, err := keyAndCertificate(t, addr, roots, tokenOf(t, c, ns, "web", "istio-ca"))
	require.NoError(t, err)
	conn := dialIstiod(t, addr, roots, *certificate)
	n := 0
	leave := func(ctx context.Context) (a agentapi.DeregisterResponse, err error) {
		n++
		q := &agentapi.DeregisterRequest{Node: fmt.Sprintf("sidecar~10.77.0.%d~gone-%d.%s~%[3]s.svc.cluster.local", n, n, ns)}
		err = conn.Invoke(ctx, agentapi.DeregisterMethod, q, &a, grpc.ForceCodec(jsonCodec{}))
		return a, err
	}
	knows := func(ctx context.Context) error {
		a, err := leave(ctx)
		if err == nil && (a.Peers != 1 || a.LackCount > 0) {
			err = fmt.Errorf("the answer is %+v", a)
		}
		return err
	}
	c.Eventually(t, "both are asked", knows)

	halt.Process(t, s.cmd.Process.Pid)
	a, err := leave(t.Context())
	_ = s.cmd.Process.Signal(syscall.SIGCONT)
	require.NoError(t, err)
	require.Equal(t, 1, a.LackCount)
	require.Contains(t, a.Lacking[0].Proxy, other)
	require.Contains(t, a.Lacking[0].Reason, "no answer for ")
	require.Less(t, a.TookMillis, float64(drain.MaxWait.Milliseconds()), "it is not waited for as long as proxies are")
	c.Eventually(t, "both are asked again", knows)

	require.NoError(t, s.cmd.Process.Kill())
	c.Eventually(t, "who is gone is not waited for", func(ctx context.Context) error {
		a, err := leave(ctx)
		if err == nil && (a.Peers != 0 || a.LackCount > 0) {
			err = fmt.Errorf("the answer is %+v", a)
		}
		return err
	})
}

// TestNACKsOfOtherControlPlanesAreReported checks that the control plane that writes statuses reports what proxies of the other
// one refuse, and that they accept it later.
func TestNACKsOfOtherControlPlanesAreReported(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	other := runControl(t, c, func(o *controlplane.Options) { o.Status = false })
	own := runControl(t, c, func(o *controlplane.Options) { o.Replicas.Addresses = []string{other.addr} })
	c.Apply(t, ns, web+"---"+route("headers: {request: {set: {x-first: '1'}}}"))
	for _, addr := range []string{other.addr, other.addr, own.addr} {
		connectRefuser(t, addr, ns, "x-refused", "x-first")
	}
	c.Apply(t, ns, route("headers: {request: {set: {x-refused: '1'}}}"))
	message := awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonRefused)
	require.Contains(t, message, "I do not like x-refused")
	c.Apply(t, ns, route("headers: {request: {set: {x-fine: '1'}}}"))
	awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted)

	connectRefuser(t, other.addr, ns, "x-elsewhere", "x-fine")
	c.Apply(t, ns, route("headers: {request: {set: {x-elsewhere: '1'}}}"))
	message = awaitReconciled(t, c, ns, "VirtualService", "web", "False", statuses.ReasonRefused)
	require.Contains(t, message, "1 proxy refuses", "and it is not connected to who writes that")
	require.Contains(t, message, "I do not like x-elsewhere")
	c.Apply(t, ns, route("headers: {request: {set: {x-fine: '1'}}}"))
	awaitReconciled(t, c, ns, "VirtualService", "web", "True", statuses.ReasonAccepted)
}

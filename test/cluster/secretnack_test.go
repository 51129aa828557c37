package cluster

import (
	"fmt"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// trusted is the service that trusting is about.
const trusted = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api}
spec: {hosts: [api.example.com], resolution: DNS, ports: [{number: 443, name: http, protocol: HTTP}]}`

// TestSecretNACKIsReportedOnReferences checks that a refused Secret with CAs, which any proxy may have, is
// attributed to the objects that name it.
func TestSecretNACKIsReportedOnReferences(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	cert, _ := newPair(t)
	roots := func(label string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: roots}\ndata: {ca.crt: %q}", "# "+label+"\n"+string(cert))
	}
	s := runControl(t, c, nil)
	c.Apply(t, ns, strings.ReplaceAll(trusting, "NAMESPACE", ns)+"\n---\n"+roots("fine")+"\n---"+trusted)
	name := "configmap://" + ns + "/roots-cacert"
	stream := openStream(t, s.addr)
	r := &refuser{stream: stream, text: "x-refused"}
	node := &core.Node{Id: "sidecar~10.9.9.6~client." + ns + "~" + ns + ".svc.cluster.local"}
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}))
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.Secret.URL(), ResourceNamesSubscribe: []string{name}}))
	stream.reading.Go(r.read)

	c.Apply(t, ns, roots("x-refused"))
	message := awaitReconciled(t, c, ns, "DestinationRule", "api", "False", status.ReasonRefused)
	require.Contains(t, message, "1 proxy refuses SDS "+name+", and their last accepted version stays in force: ")
	require.Contains(t, message, "I do not like x-refused")
	c.Apply(t, ns, roots("fine again"))
	awaitReconciled(t, c, ns, "DestinationRule", "api", "True", status.ReasonAccepted)
}

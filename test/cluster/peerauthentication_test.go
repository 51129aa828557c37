package cluster

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/test/kubetest"
)

// atPort is a PeerAuthentication that gives a port of the client a separate filter chain.
func atPort(name string, port int) string {
	return fmt.Sprintf(`
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: %s}
spec:
  selector: {matchLabels: {app: client}}
  portLevelMtls: {%d: {mode: DISABLE}}
`, name, port)
}

// TestListenerNACKIsReportedOnPeerAuthentication checks that a refused listener is attributed to the
// PeerAuthentication that changed before it, and to no other.
func TestListenerNACKIsReportedOnPeerAuthentication(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	s := runControl(t, c, nil)
	c.Apply(t, ns, web+"---"+route("")+"---"+atPort("changed", 4710)+"---"+authorized("fine", "x-fine"))
	connectRefuser(t, s.addr, ns, "catchall|4711", "/virtual-service/web")
	c.Apply(t, ns, atPort("changed", 4711))
	message := awaitReconciled(t, c, ns, "PeerAuthentication", "changed", "False", status.ReasonRefused)
	require.Contains(t, message, "1 proxy refuses LDS virtualInbound")
	require.Contains(t, message, "I do not like catchall|4711")
	for kind, name := range map[string]string{"VirtualService": "web", "AuthorizationPolicy": "fine"} {
		o, err := object(t.Context(), c, ns, kind, name)
		require.NoError(t, err)
		require.NotContains(t, o.Object, "status", "nothing is wrong with it: it is left alone")
	}
	c.Apply(t, ns, atPort("changed", 4712))
	require.Empty(t, awaitReconciled(t, c, ns, "PeerAuthentication", "changed", "True", status.ReasonAccepted))
}

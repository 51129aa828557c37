package cluster

import (
	"testing"

	"github.com/moonsail/moonsail/internal/controlplane"
	statuses "github.com/moonsail/moonsail/internal/status"
	"github.com/moonsail/moonsail/test/kubetest"

	"github.com/stretchr/testify/require"
)

// TestNACKsOfOtherControlPlanes: the one that writes statuses tells what proxies refuse that are
// connected to another one, and that they accept it afterwards.
func TestNACKsOfOtherControlPlanes(t *testing.T) {
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

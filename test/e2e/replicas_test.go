package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// startReplicated starts a rollout with three control planes. Replicas are connected to the first, and one client to
// each. If peers is set, the first knows the others.
func startReplicated(t *testing.T, peers bool) (*rollout, []load) {
	t.Helper()
	clients := []*client{newClient("one"), newClient("two"), newClient("three")}
	o := &rollout{t: t, protocol: "http", change: func(*agent.Config) {}}
	for _, c := range clients {
		o.fixed = append(o.fixed, c.sidecar("./*"))
	}
	planes, dir := make([]*mesh, 3), ""
	var known []string
	for i := 2; i >= 0; i-- {
		planes[i] = startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
			if o.Absence = time.Millisecond; dir != "" {
				o.ConfigDir = dir
			}
			if peers {
				o.Replicas.Addresses = known
			}
		}, o.config()...)
		if dir == "" {
			dir = planes[i].dir
		}
		planes[i].dir = dir
		known = append(known, planes[i].xds)
	}
	o.mesh = planes[0]
	o.add()
	o.add()
	o.mesh.apply(o.config()...)
	var calls []load
	for i, c := range clients {
		c.startAt(t, planes[i], planes[i].xds, false)
		l := startTraffic(t, c, "web")
		eventually(t, "its control plane has read of both", func() bool { return len(l.take(20)) == 2 }, nil)
		calls = append(calls, l)
	}
	return o, calls
}

// replace replaces the oldest replica, which is listed until it has ended.
func (o *rollout) replace() {
	o.t.Helper()
	o.add()
	o.mesh.apply(o.config()...)
	oldest := o.replicas[0]
	require.NoError(o.t, oldest.end(), oldest.log)
	o.t.Log(leftLine.FindString(oldest.log.String()))
	o.replicas = o.replicas[1:]
	o.mesh.apply(o.config()...)
}

// failures returns those of all calls.
func failures(calls []load) (total int, out []string) {
	for _, l := range calls {
		l.stop()
		n, failed := l.failed()
		total, out = total+n, append(out, failed...)
	}
	return total, out
}

// TestRollingRestartsWithSeveralControlPlanes checks that a replica ends only when callers that are connected to other
// control planes know it, too.
func TestRollingRestartsWithSeveralControlPlanes(t *testing.T) {
	o, calls := startReplicated(t, true)
	for range 3 {
		o.replace()
	}
	total, failed := failures(calls)
	require.Empty(t, failed, "of %d calls", total)
}

// TestUnconnectedControlPlanesLoseCalls shows that, if only the callers of the first control plane are informed, the
// others call a replica that has ended.
func TestUnconnectedControlPlanesLoseCalls(t *testing.T) {
	o, calls := startReplicated(t, false)
	oldest := o.replicas[0]
	require.NoError(t, oldest.end(), oldest.log)
	require.Contains(t, oldest.log.String(), "deregistered: 1 proxy ACKed")
	for _, l := range calls[1:] {
		l.(*traffic).next(20)
	}
	_, failed := failures(calls)
	require.NotEmpty(t, failed)
}

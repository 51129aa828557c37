package controlplane

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/election"
	"github.com/moonsail/moonsail/internal/controlplane/tracing"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Options configure `moonsail serve`.
type Options struct {
	ConfigDir        string           // a directory of YAML; empty: Kubernetes is the source
	Kubernetes       *kube.Cluster    // nil: ConfigDir is the source
	Revision         string           // objects with the label of another revision are ignored; empty: none are
	Heartbeat        time.Duration    // interval of measuring the API server's delay; 0: never
	XDSPlaintextAddr string           // empty: not served
	HTTPAddr         string           // empty: not served
	HTTPAccess       debugauth.Policy // who may read it from other machines
	Mesh             *model.Mesh
	RouteStrategy    server.RouteStrategy
	Split            derive.Sharding  // which route configurations are sharded; the zero value: SplitOf(RouteStrategy)
	Transport        server.Transport // empty: server.TransportHTTP2
	MaxConnectionAge time.Duration    // maximum age of proxies' connections; 0: until their certificates expire
	ConnectionGrace  time.Duration    // time for what is in progress on such a connection; 0: 10 s
	// ScopesPerIdentity limits the proxy groups that proxies of one identity open; 0: no limit.
	ScopesPerIdentity int
	Debounce          engine.Debounce // the zero value delays no event
	Senders           int             // concurrent pushes; 0: one per CPU
	Status            bool            // write problems of Istio objects into their status
	Webhook           webhook.Options
	Traces            tracing.Config // the zero value: changes are not traced
	AgentTokenFile    string         // file with the token for agents' debug pages; empty: none
	SampleInUse       time.Duration  // interval of asking proxies whether they use what they ACKed; 0: never
	NoChangeLog       bool           // do not follow changes, to measure the cost of it
	Identity          Identity       // the zero value: workloads have no certificates
	Replicas          Replicas       // the zero value: this control plane is alone
	RecheckReaders    time.Duration  // interval of checking who may read a Secret; 0: one minute
	Log               *slog.Logger

	// Absence is how long a draining workload waits for disconnected proxies; 0:
	// drain.DefaultReconnectGrace.
	Absence time.Duration

	// Listening is called with the addresses once they are open; nil: not called.
	Listening func(xds, http net.Addr)
	// Election times the election of the one that writes statuses; the zero value is election.DefaultTiming.
	Election election.Timing
}

// Run serves until ctx ends. It returns an error only if it cannot start.
//
//	source -> intake -> engine -> xDS server -> proxies
//	                       |          |
//	                       +-> change log -> log lines, metrics, debug pages
func Run(ctx context.Context, o Options) error {
	p, err := join(ctx, o)
	if err != nil {
		return err
	}
	if p == nil {
		return nil // ctx ended while it waited
	}
	// The stages at the edges end first, so that no proxy binds to an engine that has ended. The change log
	// ends last, with everything that the other stages reported.
	defer background(p.traces)()
	defer background(p.changes.Run)()
	defer background(func(ctx context.Context) { p.pipeline.Run(ctx, p.xds) })()
	defer p.xds.Close()

	g := newGroup(ctx)
	p.start(g, p.stages(ctx))
	announce(o, p.xdsListener, p.httpListener)
	return g.wait()
}

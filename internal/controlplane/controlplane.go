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

// Options are what `moonsail serve` can be told.
type Options struct {
	ConfigDir        string           // a tree of YAML; empty: Kubernetes is the source
	Kubernetes       *kube.Cluster    // nil: ConfigDir is the source
	Revision         string           // objects that are labelled for another are left to it; empty: all are read
	Heartbeat        time.Duration    // how often the API server's delay is measured; 0: never
	XDSPlaintextAddr string           // empty: not served
	HTTPAddr         string           // empty: not served
	HTTPAccess       debugauth.Policy // who may read it from beyond this machine
	Mesh             *model.Mesh
	RouteStrategy    server.RouteStrategy
	Split            derive.Sharding  // which route configurations are split; the zero value: SplitOf(RouteStrategy)
	Transport        server.Transport // empty: server.TransportHTTP2
	MaxConnectionAge time.Duration    // of proxies' connections; 0: until their certificates expire
	ConnectionGrace  time.Duration    // what is under way then has left; 0: 10 s
	// ScopesPerIdentity is how many scopes proxies of one identity may have opened; 0: any number.
	ScopesPerIdentity int
	Debounce          engine.Debounce // the zero value holds no event back
	Senders           int             // pushes at the same time; 0: one a CPU
	Status            bool            // what is wrong with Istio objects is written into their status
	Webhook           webhook.Options
	Traces            tracing.Config // the zero value: changes are no traces
	AgentTokenFile    string         // a token that agents' debug pages want; empty: none
	SampleInUse       time.Duration  // how often proxies are asked whether they use what they ACKed; 0: never
	NoChangeLog       bool           // changes are not followed: to measure what that costs
	Identity          Identity       // the zero value: workloads have no certificates
	Replicas          Replicas       // the zero value: this control plane is alone
	RecheckReaders    time.Duration  // how often it is asked who may read a Secret; 0: each minute
	Log               *slog.Logger

	// Absence is how long workloads that leave wait for proxies that are disconnected; 0:
	// drain.DefaultReconnectGrace.
	Absence time.Duration

	// Listening is told the addresses once they are open, where it is not nil.
	Listening func(xds, http net.Addr)
	// Election times the election of the one that writes statuses; the zero value is election.DefaultTiming.
	Election election.Timing
}

// Run serves until ctx ends. What it cannot start with is an error; later on nothing is.
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
		return nil // it was told to end while it waited
	}
	// The stages at the edges end first, so that nobody binds to an engine that has ended;
	// the change log and what it tells end last, with what the others have told them.
	defer background(p.traces)()
	defer background(p.changes.Run)()
	defer background(func(ctx context.Context) { p.pipeline.Run(ctx, p.xds) })()
	defer p.xds.Close()

	g := newGroup(ctx)
	p.start(g, p.stages(ctx))
	announce(o, p.xdsListener, p.httpListener)
	return g.wait()
}

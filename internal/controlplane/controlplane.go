package controlplane

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
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
	MeshConfigMap    string           // name of the ConfigMap with the mesh's configuration; empty: "istio"
	Revision         string           // of the label istio.io/rev, as for config.Decoder
	Heartbeat        time.Duration    // interval of measuring the API server's delay; 0: never
	XDSPlaintextAddr string           // empty: not served
	HTTPAddr         string           // empty: not served
	ReadyAddr        string           // address of /ready alone, in plain text and without credentials; empty: not served
	HTTPAccess       debugauth.Policy // who may read it from other machines
	Mesh             *model.Mesh
	RouteStrategy    server.RouteStrategy
	Sharding         derive.Sharding  // which route configurations are sharded; the zero value: ShardingOf(RouteStrategy)
	Transport        server.Transport // empty: server.TransportHTTP2
	MaxConnectionAge time.Duration    // maximum age of proxies' connections; 0: until their certificates expire
	ConnectionGrace  time.Duration    // time for what is in progress on such a connection; 0: 10 s
	// GroupsPerIdentity limits the proxy groups that proxies of one identity open; 0: no limit.
	GroupsPerIdentity int
	Debounce          engine.Debounce // the zero value delays no event
	Senders           int             // concurrent pushes; 0: one per CPU
	Status            bool            // write problems of Istio objects into their status
	DeployGateways    bool            // deploy Gateways of the Gateway API, while it writes statuses; needs Webhook.Inject
	Webhook           webhook.Options
	Traces            tracing.Config // the zero value: changes are not traced
	AgentTokenFile    string         // file with the token for agents' debug pages; empty: none
	Prometheus        *url.URL       // measures calls for the dashboard; nil: the metrics of connected proxies do
	SampleInUse       time.Duration  // interval of asking proxies whether they use what they ACKed; 0: never
	NoChangeLog       bool           // do not follow changes, to measure the cost of it
	Identity          Identity       // the zero value: workloads have no certificates
	Replicas          Replicas       // the zero value: this control plane is alone
	Dependencies      Dependencies   // the zero value: nothing is learned
	// FetchAllowLoopback allows keys (jwksUri) of servers on this machine.
	FetchAllowLoopback bool
	FetchBlocked       []netip.Prefix // addresses of servers whose keys are not fetched
	KeyRefresh         time.Duration  // interval of fetching keys again; 0: 20 minutes
	RecheckReaders     time.Duration  // interval of checking who may read a Secret; 0: one minute
	Log                *slog.Logger

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
//
// First, assemble makes the parts, connects them and opens the ports. Then the core starts, and after it the parts at the
// edges: sources, ports and what asks others. When ctx ends or a part at the edges fails, they all end together. The core
// ends after them, from the last part to the first: no proxy binds to an engine that has ended, and the change log has
// everything that the others reported.
func Run(ctx context.Context, o Options) error {
	p, err := assemble(ctx, o)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // ctx ended while it waited
	case err != nil:
		return err
	}
	defer startInOrder(
		p.exportTraces,
		p.changes.Run,
		func(ctx context.Context) { p.pipeline.Run(ctx, p.xds) },
	)()
	defer p.xds.Close() // ends the senders

	edges := newGroup(ctx)
	for _, e := range p.edges() {
		if e.on {
			edges.run(e.name, e.run)
		}
	}
	p.announce()
	return edges.wait()
}

// edge is a part at the edges of the control plane, which runs in a goroutine.
type edge struct {
	name string // in the error of the part
	on   bool   // by the options
	run  func(context.Context) error
}

// edges are the parts that end together. Each ends with its context, and owns the goroutines that it starts.
func (p *parts) edges() []edge {
	o, loaded := &p.opts, p.pipeline.Loaded()
	return []edge{
		{p.source.name, true, p.source.run},
		{"keys of tokens", true, endless(func(ctx context.Context) { p.keys.Run(ctx, loaded) })},
		{"credentials", p.secrets != nil, func(ctx context.Context) error { return p.secrets.Run(ctx, loaded) }},
		{"other control planes", true, endless(func(ctx context.Context) { p.peers.Run(ctx, loaded) })},
		{"drain notices", true, endless(p.drains.Run)},
		{"statuses", o.Status, func(ctx context.Context) error { return p.statuses.Run(ctx) }},
		{"samples of what is in use", o.SampleInUse > 0, endless(func(ctx context.Context) { p.sampler.Run(ctx) })},
		{"traffic", p.httpListener != nil, endless(func(ctx context.Context) { p.traffic.Run(ctx) })},
		{"learned dependencies", p.learning != nil, endless(func(ctx context.Context) { p.learning.run(ctx) })},
		{"debug pages", p.httpListener != nil, p.serveDebugPages},
		{"readiness", p.readyListener != nil, p.serveReady},
		{"webhook", p.webhook != nil, p.serveWebhook},
		{"xDS", p.xdsListener != nil, p.servePlaintext},
		{"certificate authority", p.secure != nil, endless(func(ctx context.Context) { p.secure.authority.Run(ctx) })},
		{"xDS with TLS", p.secure != nil, p.serveTLS},
		{"root certificates", p.secure != nil && p.source.client != nil && p.secure.authority.publishes(), p.writeRoots},
	}
}

// endless adapts a part that cannot fail.
func endless(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

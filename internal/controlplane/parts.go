package controlplane

import (
	"cmp"
	"context"
	"net"
	"path/filepath"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/drain"
	"github.com/moonsail/moonsail/internal/controlplane/gatewaydeploy"
	"github.com/moonsail/moonsail/internal/controlplane/istiodebug"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/controlplane/traffic"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/safedial"
	"github.com/moonsail/moonsail/internal/source/jwks"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// parts are the parts of a control plane. assemble makes them, in the order of the fields.
type parts struct {
	opts    Options
	metrics *changelog.Metrics
	changes *changelog.Log
	source  *source

	exportTraces func(context.Context)

	xdsListener, httpListener, readyListener net.Listener   // nil: off
	webhook                                  *webhookServer // nil: off

	pipeline *engine.Engine
	keys     *jwks.Cache
	secrets  *kube.Credentials // nil: the source is not Kubernetes
	secure   *secure           // nil: off

	drains    *drain.Registry
	peers     *peers.Peers
	learning  *learning // nil: off
	xds       *server.Server
	explainer *explain.Explainer
	istiod    *istiodebug.Pages
	agents    *agents.Client
	traffic   *traffic.Meter
	sampler   *agents.Sampler           // nil: off
	statuses  *status.Writer            // nil: off
	gateways  *gatewaydeploy.Controller // nil: off
}

// assemble makes the parts, connects them and opens the ports. Of the parts, only the xDS server has goroutines from the
// beginning; its Close ends them.
func assemble(ctx context.Context, o Options) (*parts, error) {
	p := &parts{opts: o, metrics: changelog.NewMetrics()}
	p.changes = changelog.New(changelog.DefaultChanges, o.Log, p.metrics)
	for _, add := range []func(context.Context) error{
		p.addSource, p.addTraces, p.openPorts, p.addPipeline, p.addSecure, p.addLearning, p.addServer,
	} {
		if err := add(ctx); err != nil {
			p.closePorts()
			return nil, err
		}
	}
	return p, nil
}

// ShardingOf returns which route configurations are sharded with a strategy.
func ShardingOf(s server.RouteStrategy) derive.Sharding {
	if s == server.RoutesScoped {
		return derive.ScopedSharding
	}
	return derive.AutoSharding
}

// addPipeline makes the engine, and what adds keys and Secrets to its objects.
func (p *parts) addPipeline(context.Context) error {
	o := &p.opts
	recorder, _ := p.recorders()
	p.pipeline = engine.New(engine.Options{
		Mesh: o.Mesh, Intake: p.source.intake, Recorder: recorder, Removed: p.changes.Removed, Debounce: o.Debounce,
		Sharding: cmp.Or(o.Sharding, ShardingOf(o.RouteStrategy)), Applied: p.applied, GroupsPerIdentity: o.GroupsPerIdentity, Log: o.Log,
	})
	p.keys = jwks.New(p.source.intake, p.pipeline.Snapshot, safedial.Dialer{AllowLoopback: o.FetchAllowLoopback, Blocked: o.FetchBlocked}, o.Log)
	p.keys.Refresh = o.KeyRefresh
	if p.source.client != nil {
		p.secrets = kube.NewCredentials(p.source.client, decoderOf(o), p.source.intake, p.pipeline.Snapshot, o.Log)
		p.secrets.Recheck = o.RecheckReaders
	}
	return nil
}

// applied is called with each batch once it is in the store.
func (p *parts) applied(c []store.Change) {
	p.keys.Applied(c)
	if p.secrets != nil {
		p.secrets.Applied(c)
	}
	if p.gateways != nil {
		p.gateways.Applied(c)
	}
}

// addServer makes the xDS server, and what answers questions about proxies.
func (p *parts) addServer(context.Context) error {
	o := &p.opts
	p.drains = drain.New(p.source.intake, p.changes, o.Log)
	p.peers = p.newPeers()
	_, observer := p.recorders()
	serving := server.Options{
		RouteStrategy: o.RouteStrategy, Senders: o.Senders, Meter: p.metrics, OnSettled: p.settlements(),
		DisableTracking: o.NoChangeLog, MaxConnectionAge: o.MaxConnectionAge, ConnectionGrace: o.ConnectionGrace,
		Revision: o.Revision,
		Methods:  map[string]server.Unary{agentapi.DeregisterMethod: p.drains.Deregister},
	}
	if p.learning != nil {
		serving.Learned = p.learning.memory
	}
	p.xds = server.New(binder{p.pipeline, p.drains, p.keys, p.secrets, o, p.metrics}, observer, o.Log, serving)
	p.drains.Proxies, p.drains.Lists, p.drains.ReconnectGrace = p.xds, p.pipeline.Listed, o.Absence
	p.drains.Peers = p.peers
	p.explainer = &explain.Explainer{Snapshot: p.pipeline.Snapshot, Mesh: o.Mesh, Changes: p.changes, Proxies: p.xds, Problems: p.source.problemsOf, Place: p.source.place}
	p.istiod = p.newIstioPages()
	p.agents = agents.New(p.xds, p.explainer, o.AgentTokenFile)
	p.traffic = traffic.FromProxies(p.xds, p.agents)
	if p.learning != nil {
		p.learning.scraper.Proxies, p.learning.scraper.Agents = p.xds, p.agents
	}
	if o.Prometheus != nil {
		p.traffic = traffic.FromPrometheus(o.Prometheus)
	}
	p.addSampler()
	if o.Status {
		p.statuses = newStatusWriter(p)
	}
	if o.DeployGateways {
		p.gateways = newGatewayController(p)
		p.statuses.Beside = p.gateways.Run
	}
	p.addGauges()
	return nil
}

// debugPages returns what the debug pages show.
func (p *parts) debugPages(ctx context.Context) debug.Stages {
	s := debug.Stages{
		Ready:       p.ready(),
		Problems:    problems(ctx, p.source, p.pipeline, p.keys, p.webhook.trusted()),
		Snapshot:    p.pipeline.Snapshot,
		ProxyGroups: func() any { return p.pipeline.ProxyGroups(ctx) },
		Changes:     p.changes, Proxies: p.xds, Gatherer: p.metrics.Registry, Explain: p.explainer, Sidecars: p.agents,
		Traffic: p.traffic,
		Peers:   p.configuredPeers(),
	}
	if p.opts.Kubernetes == nil {
		s.ConfigDir, _ = filepath.Abs(p.opts.ConfigDir) // fails only without a working directory
	}
	for _, page := range p.istiod.All() {
		s.More = append(s.More, debug.Page{Path: "/debug/" + page.Name, About: page.About, Serve: page.Serve})
	}
	if p.learning != nil {
		s.Dependencies = p.learning.reports
	}
	if health := p.source.health; health != nil {
		s.Source = func() any { return health() }
	}
	if p.secure != nil {
		s.CA = func() any { return p.secure.authority.state() }
	}
	return s
}

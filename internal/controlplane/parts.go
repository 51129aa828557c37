package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/drain"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/jwks"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// parts are the parts of a control plane, connected and not started.
type parts struct {
	opts      Options
	metrics   *changelog.Metrics
	changes   *changelog.Log
	source    *source
	traces    func(context.Context)
	pipeline  *engine.Engine
	keys      *jwks.Cache
	secrets   *kube.Credentials // nil: the source is not Kubernetes
	peers     *peers.Peers
	drains    *drain.Registry
	xds       *server.Server
	explainer *explain.Explainer
	asker     *agents.Client

	xdsListener, httpListener net.Listener   // nil: off
	webhook                   *webhookServer // nil: off
	secure                    *secure        // nil: off
}

// join makes the parts, and opens what can fail to open. It returns nil if ctx ended meanwhile.
func join(ctx context.Context, o Options) (p *parts, err error) {
	p = &parts{opts: o, metrics: changelog.NewMetrics()}
	p.changes = changelog.New(changelog.DefaultChanges, o.Log, p.metrics)
	if p.source, err = newSource(o, p.metrics); err != nil {
		return nil, err
	}
	if p.traces, err = newTraces(ctx, o, p.changes, p.metrics); err != nil {
		return nil, err
	}
	if p.xdsListener, p.httpListener, err = listen(ctx, o); err != nil {
		return nil, err
	}
	if p.webhook, err = newWebhook(ctx, o); err != nil {
		closeAll(p.xdsListener, p.httpListener)
		return nil, err
	}
	observer := p.joinPipeline()
	if p.secure, err = newSecure(ctx, o, p.source, p.metrics, p.pipeline.Snapshot); err != nil {
		p.webhook.close()
		closeAll(p.xdsListener, p.httpListener)
		if ctx.Err() != nil {
			return nil, nil
		}
		return nil, err
	}
	p.joinServer(observer)
	return p, nil
}

// SplitOf returns which route configurations are sharded with a strategy.
func SplitOf(s server.RouteStrategy) derive.Sharding {
	if s == server.RoutesScoped {
		return derive.ScopedSharding
	}
	return derive.AutoSharding
}

// joinPipeline makes the engine, and the observer of its changes.
func (p *parts) joinPipeline() distribution.Observer {
	o := p.opts
	recorder, observer := follow(o, p.changes)
	p.pipeline = engine.New(engine.Options{
		Mesh: o.Mesh, Intake: p.source.intake, Recorder: recorder, Removed: p.changes.Removed, Debounce: o.Debounce, Sharding: cmp.Or(o.Split, SplitOf(o.RouteStrategy)), Log: o.Log,
		Applied: p.applied, GroupsPerIdentity: o.ScopesPerIdentity,
	})
	p.keys = jwks.New(p.source.intake, p.pipeline.Snapshot, o.Log)
	if p.source.client != nil {
		p.secrets = kube.NewCredentials(p.source.client, decoderOf(o), p.source.intake, p.pipeline.Snapshot, o.Log)
		p.secrets.Recheck = o.RecheckReaders
	}
	return observer
}

// applied is called with each batch once it is in the store.
func (p *parts) applied(c []store.Change) {
	p.keys.Applied(c)
	if p.secrets != nil {
		p.secrets.Applied(c)
	}
}

// joinServer makes the xDS server, and what answers questions about proxies.
func (p *parts) joinServer(observer distribution.Observer) {
	o := p.opts
	p.drains = drain.New(p.source.intake, p.changes, o.Log)
	p.peers = p.newPeers()
	p.xds = server.New(binder{p.pipeline, p.drains, p.keys, p.secrets, &p.opts, p.metrics}, observer, o.Log, server.Options{
		RouteStrategy: o.RouteStrategy, Senders: o.Senders, Meter: p.metrics, Witness: witness(o, p.changes),
		Unfollowed: o.NoChangeLog, MaxConnectionAge: o.MaxConnectionAge, ConnectionGrace: o.ConnectionGrace,
		Methods: map[string]server.Unary{agentapi.DeregisterMethod: p.drains.Deregister},
	})
	p.drains.Proxies, p.drains.Lists, p.drains.ReconnectGrace = p.xds, p.pipeline.Listed, o.Absence
	p.drains.Peers = p.peers
	p.explainer = &explain.Explainer{Snapshot: p.pipeline.Snapshot, Mesh: p.opts.Mesh, Changes: p.changes, Proxies: p.xds, Problems: p.problemsOf}
	p.asker = agents.New(p.xds, p.explainer, o.AgentTokenFile)
	watchProxies(p.metrics, p.explainer)
	watch(p.metrics, p.pipeline, p.source.intake)
	p.metrics.Gauge("moonsail_webhooks_untrusted", "Webhook configurations that do not have this control plane's certificate.",
		func() float64 { return float64(p.webhook.trusted().Lacking()) })
}

// problemsOf returns an object's problems in the source.
func (p *parts) problemsOf(key model.Key) []string {
	var out []string
	for _, one := range p.source.problems() {
		if one.Object == key {
			out = append(out, fmt.Sprintf("%s: %s: %s", one.Severity, one.Field, one.Message))
		}
	}
	return out
}

// stages returns what debug pages show.
func (p *parts) stages(ctx context.Context) debug.Stages {
	s := debug.Stages{
		Ready:    ready(p.source, p.pipeline, p.webhook.trusted()),
		Problems: problems(p.source, p.pipeline, p.keys, p.webhook.trusted()),
		Snapshot: p.pipeline.Snapshot,
		Scopes:   func() any { return p.pipeline.ProxyGroups(ctx) },
		Changes:  p.changes, Proxies: p.xds, Gatherer: p.metrics.Registry, Explain: p.explainer, Sidecars: p.asker,
		Peers: p.others(),
	}
	if health := p.source.health; health != nil {
		s.Source = func() any { return health() }
	}
	if p.secure != nil {
		s.CA = func() any { return p.secure.authority.State() }
	}
	return s
}

// start starts everything that ends together.
func (p *parts) start(g *group, s debug.Stages) {
	o := p.opts
	g.run("samples of what is in use", newSampler(o, p.changes, p.asker, p.metrics))
	g.run("keys of tokens", func(ctx context.Context) error { p.keys.Run(ctx, p.pipeline.Synced); return nil })
	if p.secrets != nil {
		g.run("credentials", func(ctx context.Context) error { return p.secrets.Run(ctx, p.pipeline.Synced) })
	}
	g.run("other control planes", func(ctx context.Context) error { p.peers.Run(ctx, p.pipeline.Synced); return nil })
	g.run("drain notices", func(ctx context.Context) error { p.drains.Run(ctx); return nil })
	g.run(p.source.name, p.source.run)
	if p.httpListener != nil {
		g.run("debug pages", func(ctx context.Context) error {
			return debug.NewServer(s, o.HTTPAccess, o.Log).Serve(ctx, p.httpListener)
		})
	}
	if p.xdsListener != nil {
		g.run("xDS", func(ctx context.Context) error {
			return serveXDS(ctx, p.xds.Carry(o.Transport, server.Port{Methods: p.plainMethods()}), p.xdsListener)
		})
	}
	if p.secure != nil {
		p.secure.run(g, p)
	}
	if o.Status {
		g.run("statuses", newStatusWriter(p).Run)
	}
	if p.webhook != nil {
		g.run("webhook", p.webhook.serve(o, p.source, p.pipeline, p.metrics))
	}
}

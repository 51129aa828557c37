package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/controlplane/tracing"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/source/jwks"
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
	// Election is who writes statuses; the zero value is status.DefaultElection.
	Election status.Election
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

// background runs f until the function that it gives is called, which waits for its end.
func background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { f(ctx) })
	return func() {
		cancel()
		ended.Wait()
	}
}

// group runs stages until its context ends; the first that fails ends all.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	stages sync.WaitGroup
	once   sync.Once // guards err
	err    error     // of the first stage that failed
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

func (g *group) run(name string, f func(context.Context) error) {
	g.stages.Go(func() {
		if err := f(g.ctx); err != nil {
			g.once.Do(func() { g.err = fmt.Errorf("%s: %w", name, err) })
			g.cancel()
		}
	})
}

// wait gives the failure that ended the stages; nil where they were told to end.
func (g *group) wait() error {
	<-g.ctx.Done()
	g.stages.Wait()
	g.cancel()
	return g.err
}

func listen(ctx context.Context, o Options) (xds, http net.Listener, err error) {
	open := func(flag, addr string) net.Listener {
		if addr == "" || err != nil {
			return nil
		}
		ln, failed := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if failed != nil {
			err = fmt.Errorf("--%s: %w", flag, failed)
			return nil
		}
		return ln
	}
	xds = open("xds-plaintext-addr", o.XDSPlaintextAddr)
	http = open("http-addr", o.HTTPAddr)
	if err != nil && xds != nil {
		xds.Close()
	}
	return xds, http, err
}

func closeAll(listeners ...net.Listener) {
	for _, ln := range listeners {
		if ln != nil {
			ln.Close()
		}
	}
}

// leaveTime is how long proxies have to take that they are to go elsewhere.
const leaveTime = time.Second

// serveXDS answers streams until ctx ends, and then ends them, as they never end by themselves:
// proxies are told, and go elsewhere at once. Who does not hear it in time is cut.
func serveXDS(ctx context.Context, xds server.Carrier, ln net.Listener) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		xds.GracefulStop(leave)
	})
	err := xds.Serve(ln)
	if stop() {
		xds.Stop()
		return err
	}
	<-stopped
	return nil
}

func announce(o Options, xds, http net.Listener) {
	var x, h net.Addr
	if xds != nil {
		x = xds.Addr()
		o.Log.Info("serving xDS in plain text", "addr", x.String())
	}
	if http != nil {
		h = http.Addr()
		o.Log.Info("serving metrics and debug pages", "url", fmt.Sprintf("http://%s/debug", h))
	}
	if o.Listening != nil {
		o.Listening(x, h)
	}
}

func ready(s *source, e *engine.Engine, t *webhook.Trust) func() error {
	return func() error {
		if err := s.waiting(); err != nil {
			return err
		}
		if !e.Synced() {
			return errors.New("the configuration has not been read yet")
		}
		return t.Waiting(time.Now())
	}
}

// Problems is the body of /debug/problems.
type Problems struct {
	Config      problem.List     `json:"config"`      // in the sources
	Translation []engine.Failure `json:"translation"` // what could not be made into Envoy's resources
}

func problems(s *source, e *engine.Engine, k *jwks.Cache, t *webhook.Trust) func() any {
	return func() any {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return Problems{Config: joined(s.problems(), k.Problems(), lacking(e), untrusted(t)), Translation: e.Failures(ctx)}
	}
}

// joined are lists in one. The source's is of all who ask, so that nothing is appended to it.
func joined(lists ...problem.List) problem.List { return slices.Concat(lists...) }

// maxLacking bounds how many hosts without an address a page names.
const maxLacking = 100

// lacking tells of ServiceEntries for which no address is left.
func lacking(e *engine.Engine) problem.List {
	var out problem.List
	list := e.Lacking()
	for _, l := range list[:min(len(list), maxLacking)] {
		out = append(out, problem.Problem{Severity: problem.SeverityWarning, Object: l.Entry, Message: l.String()})
	}
	return out
}

// watch registers the gauges that are asked when they are read.
func watch(m *changelog.Metrics, e *engine.Engine, in *store.Intake) {
	m.IntakeDepth(in.DepthOf)
	m.Inventory(
		func() int { return e.Snapshot().Len(model.KindService) + e.Snapshot().Len(model.KindServiceEntry) },
		func(k model.Kind) int { return e.Snapshot().Len(k) },
	)
	m.Gauge("moonsail_service_entry_hosts_without_address", "Hosts of ServiceEntries for which no address is left.",
		func() float64 { return float64(len(e.Lacking())) })
}

// watchProxies registers the gauges of what proxies lack.
func watchProxies(m *changelog.Metrics, x *explain.Explainer) {
	m.Gauge("moonsail_stale_proxies", "Connected proxies that hold endpoints which went more than a second ago.",
		func() float64 { return float64(x.StaleProxies()) })
	m.Gauge("moonsail_oldest_unacked_seconds", "Age of the oldest response that a proxy has neither accepted nor refused.",
		func() float64 { return x.UnansweredFor().Seconds() })
}

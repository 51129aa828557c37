package throughput

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/balance"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// The mesh of the workload whose memory is measured, and the hosts that it sees.
const (
	meshServices = 1000
	scopedHosts  = 10
)

// targetConnections is the number of connections in the target of balance.
const targetConnections = 64

// Names of variants that only targets need.
var (
	Scoped  = fmt.Sprintf("both, mTLS, %d of %d services", scopedHosts, meshServices)
	Workers = fmt.Sprintf("server, %d workers", balance.DefaultOptions().Workers)
)

// services is the number of services in the mesh besides the pairs.
func (l *lab) services() int {
	if l.TargetsOnly {
		return meshServices
	}
	return 0
}

// targets adds the variants that targets need, and compares with both of Istio's defaults.
func (l *lab) targets(e *experiment.Experiment) {
	scoped := l.ours()
	for i := range scopedHosts {
		scoped.Hosts = append(scoped.Hosts, meshfiles.Namespace+"/"+meshfiles.Host(fmt.Sprintf("svc-%05d", i)))
	}
	ours, theirs, quiet := mutual(l.first), peer(l.first), noLog(l.first)
	e.Variants = []experiment.Variant{
		l.variant(None, "without sidecars", 0, true, pair.Setup{}),
		l.empty(),
		l.variant(ours, "", l.first, true, l.ours()),
		l.variant(theirs, "HTTP/1.1 between sidecars, no exact_balance, access log as text", l.first, true, Peer()),
		l.variant(quiet, "as above, without an access log", l.first, true, withoutLog()),
		l.scoped(scoped),
		{Name: Workers, About: "without a client's sidecar, in plain text: how workers share connections", Start: l.balance},
	}
	e.Metrics = append(e.Metrics, experiment.Metric{Name: "clusters", Title: "clusters", Absolute: true, Detail: true}, experiment.Metric{Name: balance.Uneven, Title: "busiest worker's connections/mean", Unit: "x", Better: experiment.Lower, Detail: true})
	e.Expect = 6*l.phases.Closed + time.Duration(4*len(l.Rates))*l.phases.Fixed + 3*time.Second
	for _, base := range []string{theirs, quiet} {
		e.Compare = append(e.Compare, experiment.Pair{Variant: ours, Base: base, Metrics: l.compared()})
		e.Targets = append(e.Targets, l.against(ours, base)...)
	}
	e.Targets = append(e.Targets,
		experiment.Target{What: fmt.Sprintf("Envoy's RSS beyond an empty one's, %d of %d services", scopedHosts, meshServices), Metric: "rss", Variant: Scoped, Base: Empty, Limit: 30},
		experiment.Target{What: fmt.Sprintf("busiest worker's connections to the mean, of %d", targetConnections), Metric: balance.Uneven, Variant: Workers, Limit: 1.1})
	e.Plots = l.plots()
}

// scoped is the pair whose memory is measured.
func (l *lab) scoped(s pair.Setup) experiment.Variant {
	v := l.variant(Scoped, "memory of a workload whose Sidecar resource selects few services", l.first, false, s)
	start := v.Start
	v.Start = func(ctx context.Context) (experiment.Subject, error) {
		s, err := start(ctx)
		if err != nil {
			return nil, err
		}
		return &scopedPair{s.(*pair.Subject)}, nil
	}
	return v
}

// scopedPair also measures the number of clusters of its client.
type scopedPair struct{ *pair.Subject }

// Measure implements experiment.Subject.
func (s *scopedPair) Measure(ctx context.Context, r experiment.Round) (experiment.Sample, error) {
	out, err := s.Subject.Measure(ctx, r)
	if err != nil {
		return nil, err
	}
	admin := envoy.NewAdmin(s.Client.Admin)
	defer admin.Close()
	stats, err := admin.Stats(ctx, `^cluster_manager\.active_clusters$`)
	out["clusters"] = float64(stats["cluster_manager.active_clusters"])
	return out, err
}

// balance is a server's sidecar with many connections.
func (l *lab) balance(ctx context.Context) (experiment.Subject, error) {
	return balance.Alone(ctx, l.mesh, balance.DefaultOptions().Workers, targetConnections, l.phases.Closed)
}

package status

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/moonsail/moonsail/internal/explain"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// LeaseName is the Lease that the control plane holds which writes.
const LeaseName = "moonsail-status-leader"

const fieldManager = "moonsail"

// The default rate of writes.
const (
	DefaultPerSecond = 20
	DefaultBurst     = 50
)

// Election is the timing of who writes: a leader that is gone is followed after Lease (whole seconds), and
// one that could not renew its Lease for Renew, which is less, does not write any more.
type Election struct{ Lease, Renew, Retry time.Duration }

// DefaultElection is that of Kubernetes' own components.
var DefaultElection = Election{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}

// Proxies is what the xDS server is to this package.
type Proxies interface {
	Refusals() []*server.Refusal
}

// Meter counts writes by their result: written, conflict, gone or failed.
type Meter interface {
	StatusWrite(result string)
}

// Writer writes statuses while it leads. Its fields are set before Run.
type Writer struct {
	Board     *Board
	Client    *kube.Client
	Namespace string // of the Lease
	Identity  string // among control planes
	Domain    string
	Explain   *explain.Explainer
	Proxies   Proxies
	Others    *Others     // nil: this control plane is alone
	Synced    func() bool // all that there is has been read
	Meter     Meter
	Log       *slog.Logger
	Election  Election // the zero value is DefaultElection

	dynamic dynamic.Interface
	leases  leases
	mu      sync.Mutex // guards leading
	leading bool
}

// Reporter is what tells of this control plane's own proxies.
func (w *Writer) Reporter() *Reporter {
	return &Reporter{Snapshot: w.Explain.Snapshot, Refusals: w.Proxies.Refusals, Explain: w.Explain.Object, Causes: w.Explain.Causes}
}

// Leads tells whether this control plane writes.
func (w *Writer) Leads() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leading
}

func (w *Writer) setLeading(yes bool) {
	w.mu.Lock()
	w.leading = yes
	w.mu.Unlock()
}

// Run stands for election, and writes when it leads, until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	config, client := w.Client.REST()
	var err error
	if w.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return err
	}
	api, err := coordination.NewForConfigAndClient(config, client)
	if err != nil {
		return err
	}
	w.leases = api.Leases(w.Namespace)
	if w.Election == (Election{}) {
		w.Election = DefaultElection
	}
	for tell := w.teller(); ctx.Err() == nil; {
		w.serve(ctx, tell, w.lead)
	}
	return nil
}

// serve waits to be elected, and leads until that is over or ctx ends. The Lease is let go when lead has
// returned.
func (w *Writer) serve(ctx context.Context, tell func(context.Context, error), lead func(context.Context)) {
	e := &elector{leases: w.leases, identity: w.Identity, timing: w.Election, tell: tell}
	if !e.acquire(ctx) {
		return
	}
	standing, resign := context.WithCancel(context.WithoutCancel(ctx))
	term, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		defer stop()
		e.keep(standing)
	})
	lead(term)
	resign()
	keeping.Wait()
	e.release(context.WithoutCancel(ctx))
}

// teller says why the Lease cannot be had, once for each reason.
func (w *Writer) teller() func(context.Context, error) {
	told := ""
	return func(ctx context.Context, err error) {
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && told != err.Error():
			told = err.Error()
			w.Log.Warn("no statuses are written by this control plane: the Lease of who does cannot be had",
				"lease", w.Namespace+"/"+LeaseName, "error", err)
		}
	}
}

// lead looks and writes until ctx ends.
func (w *Writer) lead(ctx context.Context) {
	w.Log.Info("this control plane writes statuses now")
	w.setLeading(true)
	defer w.setLeading(false)
	if !w.loaded(ctx) {
		return
	}
	write := &writer{
		board: w.Board, api: cluster{w.dynamic}, count: w.Meter.StatusWrite, log: w.Log,
		limit: flowcontrol.NewTokenBucketRateLimiter(DefaultPerSecond, DefaultBurst), forbidden: longest,
	}
	check := &checker{
		board: w.Board, here: w.Reporter(), others: w.Others, domain: w.Domain,
	}
	var working sync.WaitGroup
	defer working.Wait()
	check.run(ctx, func() { working.Go(func() { write.run(ctx) }) })
	w.Log.Info("this control plane does not write statuses any more")
}

// loaded waits until everything has been read: half of it means nothing. false: ctx ended.
func (w *Writer) loaded(ctx context.Context) bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !w.Synced() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return ctx.Err() == nil
}

package status

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/moonsail/moonsail/internal/controlplane/election"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// LeaseName is the Lease that the control plane holds which writes.
const LeaseName = "moonsail-status-leader"

const fieldManager = "moonsail"

// The default rate of writes.
const (
	DefaultPerSecond = 20
	DefaultBurst     = 50
)

// Proxies is what the xDS server is to this package.
type Proxies interface {
	Refusals() []*distribution.Refusal
}

// Meter counts writes by their result: written, conflict, gone or failed.
type Meter interface {
	StatusWrite(result string)
}

// Writer writes statuses while it leads. Its fields are set before Run.
type Writer struct {
	Board     *Board
	Client    *kube.Client
	Namespace string      // of the Lease
	Identity  string      // among control planes
	Mesh      *model.Mesh // that the control plane was started with
	Explain   *explain.Explainer
	Proxies   Proxies
	Others    *Others     // nil: this control plane is alone
	Synced    func() bool // all that there is has been read
	Meter     Meter
	Log       *slog.Logger
	Election  election.Timing // the zero value is election.DefaultTiming

	dynamic dynamic.Interface
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

// Run stands for election, and writes when it leads, until ctx ends. The Lease is released after the last write.
func (w *Writer) Run(ctx context.Context) error {
	config, client := w.Client.REST()
	var err error
	if w.dynamic, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return err
	}
	leases, err := election.NewLeases(w.Client)
	if err != nil {
		return err
	}
	candidate := &election.Candidate{
		Leases: leases, Namespace: w.Namespace, Name: LeaseName, Identity: w.Identity, Timing: w.Election,
		Warn: func(err error) {
			w.Log.Warn("this control plane writes no statuses: it cannot get the Lease of the one that does", "lease", w.Namespace+"/"+LeaseName, "error", err)
		},
	}
	if candidate.Timing == (election.Timing{}) {
		candidate.Timing = election.DefaultTiming
	}
	candidate.Run(ctx, w.lead)
	return nil
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
		board: w.Board, here: w.Reporter(), others: w.Others, mesh: w.Mesh,
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

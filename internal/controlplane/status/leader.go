package status

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/moonsail/moonsail/internal/controlplane/election"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// LeaseName is the name of the Lease of the control plane that writes.
const LeaseName = "moonsail-status-leader"

const fieldManager = "moonsail"

// The default rate of writes.
const (
	DefaultPerSecond = 20
	DefaultBurst     = 50
)

// Proxies is the part of the xDS server that this package reads.
type Proxies interface {
	Refusals() []*distribution.Refusal
}

// Meter counts writes by result: written, conflict, gone or failed.
type Meter interface {
	StatusWrite(result string)
}

// Writer writes statuses while it leads. Its fields are set before Run.
type Writer struct {
	Tracker   *Tracker
	Client    *kube.Client
	Namespace string      // namespace of the Lease
	Identity  string      // name among control planes
	Mesh      *model.Mesh // of the start
	Explain   *explain.Explainer
	Proxies   Proxies
	Others    *Others         // nil: this control plane is alone
	Loaded    <-chan struct{} // closed when everything has been read
	Meter     Meter
	Log       *slog.Logger
	Election  election.Timing // the zero value is election.DefaultTiming
	// Beside runs while this control plane leads; nil: nothing.
	Beside func(context.Context)

	dynamic dynamic.Interface
	mu      sync.Mutex // guards leading
	leading bool
}

// Reporter returns the reporter of this control plane's own proxies.
func (w *Writer) Reporter() *Reporter {
	return &Reporter{Snapshot: w.Explain.Snapshot, Refusals: w.Proxies.Refusals, Explain: w.Explain.Object, Causes: w.Explain.Causes}
}

// Leads reports whether this control plane writes.
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

// Run takes part in elections once everything has been read, and writes while it leads, until ctx ends. It releases the
// Lease after the last write. Without everything it must not lead: partial state would give wrong statuses, and if it may not
// read some kind, no other control plane would write while it holds the Lease.
func (w *Writer) Run(ctx context.Context) error {
	select {
	case <-w.Loaded:
	case <-ctx.Done():
		return nil
	}
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
			w.Log.Warn("this control plane cannot write statuses: no access to the Lease", "lease", w.Namespace+"/"+LeaseName, "error", err)
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
	w.Log.Info("this control plane starts to write statuses")
	w.setLeading(true)
	defer w.setLeading(false)
	write := &writer{
		tracker: w.Tracker, api: cluster{w.dynamic}, count: w.Meter.StatusWrite, log: w.Log,
		limit: flowcontrol.NewTokenBucketRateLimiter(DefaultPerSecond, DefaultBurst), forbidden: longest, firstPause: firstPause,
	}
	check := &checker{
		tracker: w.Tracker, here: w.Reporter(), others: w.Others, mesh: w.Mesh,
	}
	var working sync.WaitGroup
	defer working.Wait()
	if w.Beside != nil {
		defer w.Tracker.awaitDeployments()()
		working.Go(func() { w.Beside(ctx) })
	}
	check.run(ctx, func() { working.Go(func() { write.run(ctx) }) })
	w.Log.Info("this control plane stops writing statuses")
}

package gatewaydeploy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Statuses takes what the statuses of Gateways report: *status.Tracker.
type Statuses interface {
	// SetDeployment sets the state of a Gateway's deployment; nil: it has none.
	SetDeployment(model.Key, *status.Deployment)
	// ClearDeployments forgets all states: this control plane does not deploy any more.
	ClearDeployments()
}

// Controller deploys Gateways while this control plane leads. Its exported fields are set before the first Run.
type Controller struct {
	Client        *kube.Client
	RootNamespace string         // of the ConfigMaps with defaults of classes
	Revision      string         // Gateways with the label of another revision are not deployed; empty: all are
	Inject        *inject.Config // renders the routers
	Snapshot      func() *store.Snapshot
	// ProxyConfigs returns the mesh's settings for proxies.
	ProxyConfigs func() *model.ProxyConfigs
	Statuses     Statuses
	Panicked     func() // called after a panic of a reconciliation, for a metric
	Log          *slog.Logger

	mu      sync.Mutex // guards current
	current *term      // nil: it does not run
}

// revision returns the revision that labels name.
func (c *Controller) revision() string { return cmp.Or(c.Revision, model.DefaultRevision) }

// controllerVersion is the version of Istio's controller whose names and labels this one uses. A Gateway with the annotation of a later
// version belongs to another controller.
const controllerVersion = 5

// handles reports whether this control plane deploys a Gateway: its revision matches, and no newer controller claims it.
func (c *Controller) handles(g *gateway) bool {
	if text, ok := g.Annotations[annotationVersion]; ok {
		if n, err := strconv.Atoi(text); err != nil || n > controllerVersion {
			return false
		}
	}
	rev := g.Labels[model.LabelRevision]
	return c.Revision == "" || rev == "" || rev == c.Revision
}

// Waits of a Gateway after failures: the first, and the longest.
const (
	firstRetry   = 200 * time.Millisecond
	longestRetry = time.Minute
)

// queue has the Gateways and GatewayClasses to reconcile.
type queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// term is one lead.
type term struct {
	*Controller
	dynamic   dynamic.Interface
	queue     queue
	inventory *inventory
	watching  sync.WaitGroup // the goroutines of watches
	lists     *lists
	errors    map[types.NamespacedName]*logonce.Errors // of the Gateways that are retried
}

// Run deploys until ctx ends. All that it started has ended then, except goroutines of the queue, which end at once.
func (c *Controller) Run(ctx context.Context) {
	config, http := c.Client.REST()
	client, err := dynamic.NewForConfigAndClient(config, http)
	if err != nil {
		c.Log.Error("gateways are not deployed: no client of the API server", "error", err)
		return
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, longestRetry)
	t := &term{
		Controller: c, dynamic: client, queue: workqueue.NewTypedRateLimitingQueue(limiter), inventory: newInventory(),
		lists: newLists(), errors: map[types.NamespacedName]*logonce.Errors{},
	}
	c.setCurrent(t)
	defer c.Statuses.ClearDeployments()
	defer t.watching.Wait()
	defer t.queue.ShutDown()
	defer c.setCurrent(nil)
	stop := context.AfterFunc(ctx, t.queue.ShutDown)
	defer stop()
	t.watch(ctx)
	if !t.lists.wait(ctx) {
		return
	}
	t.ensureClasses()
	for t.next(ctx) {
	}
}

func (c *Controller) setCurrent(t *term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = t
}

// Queued returns the number of Gateways that wait to be reconciled.
func (c *Controller) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return 0
	}
	return c.current.queue.Len()
}

// Applied queues the Gateways that a batch of changes concerns: settings of proxies, and ListenerSets. It does not block.
func (c *Controller) Applied(batch []store.Change) {
	c.mu.Lock()
	t := c.current
	c.mu.Unlock()
	if t == nil {
		return
	}
	snap := c.Snapshot()
	for i := range batch {
		which, all := concerned(snap, &batch[i])
		if all {
			which = t.inventory.gatewaysWith(func(types.NamespacedName, seenGateway) bool { return true })
		}
		t.add(which)
	}
}

func (t *term) add(all []types.NamespacedName) {
	for _, n := range all {
		t.queue.Add(n)
	}
}

// next reconciles one Gateway or GatewayClass. It returns false if ctx ends.
func (t *term) next(ctx context.Context) bool {
	n, down := t.queue.Get()
	if down {
		return false
	}
	defer t.queue.Done(n)
	again, err := t.recoverPanic(n, func() (bool, error) { return t.reconcile(ctx, n) })
	switch {
	case ctx.Err() != nil:
	case err != nil || again:
		t.warn(n, err)
		t.queue.AddRateLimited(n)
	default:
		delete(t.errors, n)
		t.queue.Forget(n)
	}
	return ctx.Err() == nil
}

// panicError is a panic during a reconciliation: a bug. Its Gateway gets the error, and the other Gateways are deployed.
type panicError struct{ cause string }

func (e *panicError) Error() string {
	return "internal error: " + e.cause + ": report this bug, with the log of the control plane"
}

// recoverPanic calls a function for a Gateway, and turns a panic into an error.
func (t *term) recoverPanic(n types.NamespacedName, f func() (again bool, err error)) (again bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			t.Panicked()
			t.Log.Error("panic while a gateway is deployed", "namespace", n.Namespace, "gateway", n.Name, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			again, err = false, &panicError{fmt.Sprint(cause)}
		}
	}()
	return f()
}

// warn logs an error of a Gateway once.
func (t *term) warn(n types.NamespacedName, err error) {
	if err == nil {
		return // the last error stays: this result is neither a failure nor a success
	}
	if t.errors[n] == nil {
		t.errors[n] = &logonce.Errors{}
	}
	if t.errors[n].New(err) {
		t.Log.Warn("cannot deploy gateway, retrying: see its status", "namespace", n.Namespace, "gateway", n.Name, "error", err)
	}
}

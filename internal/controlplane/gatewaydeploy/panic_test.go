package gatewaydeploy

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// reported records the states of Gateways.
type reported map[model.Key]*status.Deployment

func (r reported) SetDeployment(k model.Key, d *status.Deployment) { r[k] = d }
func (r reported) ClearDeployments()                               { clear(r) }

// panicking returns a term in which reconciliations panic.
func panicking(counted *int) (*term, reported) {
	states := reported{}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, longestRetry)
	return &term{
		Controller: &Controller{
			Snapshot: func() *store.Snapshot { panic("no snapshot") }, Statuses: states, Panicked: func() { *counted++ },
			Log: slog.New(slog.DiscardHandler),
		},
		queue: workqueue.NewTypedRateLimitingQueue(limiter), errors: map[types.NamespacedName]*logonce.Errors{},
	}, states
}

// TestPanicIsReportedInStatus checks that the Gateway whose deployment panics reports it.
func TestPanicIsReportedInStatus(t *testing.T) {
	counted := 0
	term, states := panicking(&counted)
	defer term.queue.ShutDown()
	g := gatewayOf(t, "gatewayClassName: istio")
	_, err := term.deploy(t.Context(), g)
	require.ErrorContains(t, err, "internal error: no snapshot")
	require.Contains(t, states[g.key()].Failure, "internal error: no snapshot")
	require.Equal(t, 1, counted)
}

// TestPanicDoesNotStopOtherGateways checks that the queue goes on after a panic, and tries the Gateway again.
func TestPanicDoesNotStopOtherGateways(t *testing.T) {
	counted := 0
	term, _ := panicking(&counted) // without a client, each reconciliation panics
	defer term.queue.ShutDown()
	term.add([]types.NamespacedName{{Namespace: "shop", Name: "web"}, {Namespace: "shop", Name: "other"}})
	require.True(t, term.next(t.Context()))
	require.True(t, term.next(t.Context()))
	require.Equal(t, 2, counted)
	require.Equal(t, 1, term.queue.NumRequeues(types.NamespacedName{Namespace: "shop", Name: "web"}))
}

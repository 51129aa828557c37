package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tokens is a limiter that lets writes through one by one.
type tokens chan struct{}

func (l tokens) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l:
		return nil
	}
}

type results struct {
	mu   sync.Mutex // guards seen
	seen map[string]int
}

func (r *results) count(result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[result]++
}

func (r *results) of(result string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[result]
}

func start(t *testing.T, b *Tracker, s *apiServer, l limiter) *results {
	t.Helper()
	return startWith(t, b, s, l, time.Millisecond)
}

// startWith suspends resources for a while whose statuses cannot be written.
func startWith(t *testing.T, b *Tracker, s *apiServer, l limiter, pause time.Duration) *results {
	t.Helper()
	r := &results{seen: map[string]int{}}
	w := &writer{tracker: b, api: s, limit: l, count: r.count, log: slog.New(slog.DiscardHandler), forbidden: pause, firstPause: pause}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	require.Eventually(t, look, time.Minute, time.Millisecond, what)
}

func TestWritesOfOneObjectCoalesce(t *testing.T) {
	b, s, l := NewTracker(), newServer(), make(tokens)
	start(t, b, s, l)
	for i := range 1000 {
		s.apply(b, key("web"), fmt.Sprintf("problem %d", i))
	}
	require.LessOrEqual(t, b.Queued(), 1)
	await.To(t, l, struct{}{})
	eventually(t, "a write", func() bool { return s.wrote() == 1 })
	require.Equal(t, "not used\nerror: spec: problem 999", s.message(key("web")), "it says what is known when it is written")
	eventually(t, "nothing left to write", func() bool { return b.Queued() == 0 })
}

func TestEachWriteTakesItsTurn(t *testing.T) {
	b, s, l := NewTracker(), newServer(), make(tokens)
	start(t, b, s, l)
	for i := range 10 {
		s.apply(b, key(fmt.Sprintf("web-%d", i)), "bad")
	}
	for n := range 10 {
		require.Equal(t, n, s.wrote(), "nothing is written out of turn")
		await.To(t, l, struct{}{})
		eventually(t, "a write", func() bool { return s.wrote() == n+1 })
	}
}

// stopped is a clock that advances only by sleeping: it adds up the waits of a limiter.
type stopped struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func (c *stopped) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stopped) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *stopped) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// atRate waits like client-go's token bucket, on a stopped clock.
type atRate struct {
	bucket flowcontrol.RateLimiter
}

func (r atRate) Wait(ctx context.Context) error {
	r.bucket.Accept()
	return ctx.Err()
}

func TestRateOfWrites(t *testing.T) {
	b, s, clock := NewTracker(), newServer(), &stopped{now: time.Unix(1000, 0)}
	for i := range 250 {
		s.apply(b, key(fmt.Sprintf("web-%d", i)), "bad")
	}
	start(t, b, s, atRate{flowcontrol.NewTokenBucketRateLimiterWithClock(DefaultPerSecond, DefaultBurst, clock)})
	eventually(t, "all writes", func() bool { return s.wrote() == 250 })
	took := clock.Now().Sub(time.Unix(1000, 0))
	require.InDelta(t, float64(250-DefaultBurst)/DefaultPerSecond, took.Seconds(), 0.1)
}

func always(t *testing.T) tokens {
	l := make(tokens)
	done := make(chan struct{})
	var giving sync.WaitGroup
	giving.Go(func() {
		for {
			select {
			case <-done:
				return
			case l <- struct{}{}:
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		giving.Wait()
	})
	return l
}

func TestConflictTakesTheNewestAndKeepsOthersConditions(t *testing.T) {
	b, s := NewTracker(), newServer()
	s.meet = func() { // another writer is between the event and the write
		s.mu.Lock()
		defer s.mu.Unlock()
		s.have[key("web")].put(json.RawMessage(`{"conditions":[{"type":"Other","status":"True"}],"validationMessages":[{"type":{"name":"Theirs"}}]}`))
	}
	r := start(t, b, s, always(t))
	s.apply(b, key("web"), "bad")
	eventually(t, "a write", func() bool { return s.wrote() == 1 })
	got := s.status(key("web"))
	require.Equal(t, "Other", got.conditions[0]["type"])
	require.Equal(t, "False", got.reconciled()["status"])
	require.Len(t, got.messages, 2)
	require.Equal(t, 1, r.of(resultConflict))
	b.Seen(&kube.Seen{Key: key("web"), Resource: virtualServices, Version: "1", Generation: 1, Problems: problem.List{
		{Severity: problem.SeverityError, Object: key("web"), Field: "spec", Message: "bad"},
	}}) // an older event: a write for it meets a conflict, and finds nothing to do
	eventually(t, "another conflict", func() bool { return r.of(resultConflict) == 2 })
	eventually(t, "nothing left to write", func() bool { return b.Queued() == 0 })
	require.Equal(t, 1, s.wrote())
}

func TestNewerGenerationIsNotJudgedByAnOlder(t *testing.T) {
	b, s := NewTracker(), newServer()
	s.meet = func() { // the user corrects it meanwhile, and its event has not come
		s.mu.Lock()
		defer s.mu.Unlock()
		o := s.have[key("web")]
		o.generation++
		o.put(nil)
	}
	r := start(t, b, s, always(t))
	s.apply(b, key("web"), "bad")
	eventually(t, "a conflict", func() bool { return r.of(resultConflict) == 1 })
	s.apply(b, key("other"), "bad")
	eventually(t, "the next write", func() bool { return s.wrote() == 1 })
	require.Empty(t, s.status(key("web")).conditions)
}

func TestObjectThatIsGoneIsForgotten(t *testing.T) {
	b, s := NewTracker(), newServer()
	r := start(t, b, s, always(t))
	tell(b, key("gone"), &live{version: "1", generation: 1}, "bad")
	eventually(t, "an answer", func() bool { return r.of(resultGone) == 1 })
	b.Gone(key("gone"))
	require.Zero(t, b.Queued())
}

func TestFailedWriteIsTriedAgain(t *testing.T) {
	b, s := NewTracker(), newServer()
	s.fail = []error{errors.New("connection refused"), apierrors.NewForbidden(virtualServices.GroupResource(), "web", errors.New("no"))}
	r := start(t, b, s, always(t))
	s.apply(b, key("web"), "bad")
	eventually(t, "a write", func() bool { return s.wrote() == 1 })
	require.Equal(t, 2, r.of(resultFailed))
}

// TestFailingResourceDelaysNoOther checks that other resources are written, and that this one
// is retried.
func TestFailingResourceDelaysNoOther(t *testing.T) {
	for name, err := range map[string]error{
		"forbidden":     apierrors.NewForbidden(virtualServices.GroupResource(), "web-0", errors.New("no")),
		"failing hooks": apierrors.NewInternalError(errors.New("failed calling webhook")),
	} {
		t.Run(name, func(t *testing.T) { failingResource(t, err) })
	}
}

func failingResource(t *testing.T, err error) {
	b, s := NewTracker(), newServer()
	s.fail = []error{err}
	r := startWith(t, b, s, always(t), time.Hour)
	for i := range 3 {
		s.apply(b, key(fmt.Sprintf("web-%d", i)), "bad")
	}
	eventually(t, "a failure", func() bool { return r.of(resultFailed) == 1 })
	s.mu.Lock()
	s.have[gatewayKey] = &live{version: "1", generation: 1}
	s.mu.Unlock()
	b.Seen(&kube.Seen{
		Key: gatewayKey, Resource: schema.GroupVersionResource{Resource: "gateways"}, Version: "1", Generation: 1,
		GatewayRefs: &gatewayapi.Refs{Gateway: &gatewayapi.GatewayRef{}},
	})
	b.setJudged(map[model.Key]*judgement{gatewayKey: {generation: 1, conditions: []condition{{typeAccepted, true, "Accepted", ""}}}})
	eventually(t, "the status of another resource", func() bool { return s.wrote() == 1 })
	require.Equal(t, 3, b.Queued())
	b.Gone(key("web-1"))
	require.Equal(t, 2, b.Queued())
	b.resume(virtualServices)
	eventually(t, "those that were set aside", func() bool { return s.wrote() == 3 })
}

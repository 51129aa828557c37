package election

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// server stores one Lease as an API server does.
type server struct {
	mu     sync.Mutex // guards all below
	stored *coordinationv1.Lease
	writes int
}

func (s *server) get() (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		return nil, apierrors.NewNotFound(leases, "leader")
	}
	return s.stored.DeepCopy(), nil
}

func (s *server) put(o *coordinationv1.Lease, create bool) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case create && s.stored != nil:
		return nil, apierrors.NewAlreadyExists(leases, o.Name)
	case !create && s.stored.ResourceVersion != o.ResourceVersion:
		return nil, apierrors.NewConflict(leases, o.Name, errors.New("the object has been modified"))
	}
	s.writes++
	s.stored = o.DeepCopy()
	s.stored.ResourceVersion = strconv.Itoa(s.writes)
	return s.stored.DeepCopy(), nil
}

func (s *server) holder() string {
	o, err := s.get()
	if err != nil {
		return ""
	}
	return *o.Spec.HolderIdentity
}

// connection is one candidate's way to the server. While err is set, requests fail with it.
type connection struct {
	*server
	mu  sync.Mutex // guards err
	err error
}

func (c *connection) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *connection) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *connection) Get(context.Context, string, string) (*coordinationv1.Lease, error) {
	if err := c.failure(); err != nil {
		return nil, err
	}
	return c.get()
}

func (c *connection) Create(_ context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := c.failure(); err != nil {
		return nil, err
	}
	return c.put(o, true)
}

func (c *connection) Update(_ context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if err := c.failure(); err != nil {
		return nil, err
	}
	return c.put(o, false)
}

// member is a running candidate.
type member struct {
	*connection
	stop func()

	mu       sync.Mutex // guards all below
	leading  bool
	terms    int
	warnings []error
}

func (m *member) leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading
}

func (m *member) setLeading(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = yes
	if yes {
		m.terms++
	}
}

// join runs a candidate whose leader needs a while to end.
func join(t *testing.T, s *server, name string, ending time.Duration) *member {
	t.Helper()
	m := &member{connection: &connection{server: s}}
	c := &Candidate{Leases: m.connection, Namespace: "istio-system", Name: "leader", Identity: name, Timing: DefaultTiming}
	c.Warn = func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.warnings = append(m.warnings, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx, func(ctx context.Context) {
			m.setLeading(true)
			<-ctx.Done()
			elapse(ending)
			m.setLeading(false)
		})
	}()
	m.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(m.stop)
	return m
}

// elapse lets time pass on the fake clock of synctest.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // takes no real time

func TestOneLeadsAndRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := join(t, s, "first", 0)
		synctest.Wait()
		require.True(t, first.leads())
		second := join(t, s, "second", 0)
		elapse(10 * time.Minute)
		require.True(t, first.leads())
		require.False(t, second.leads())
		have, err := s.get()
		require.NoError(t, err)
		require.Equal(t, "first", *have.Spec.HolderIdentity)
		require.EqualValues(t, 15, *have.Spec.LeaseDurationSeconds)
		require.EqualValues(t, 0, *have.Spec.LeaseTransitions)
		require.Less(t, time.Since(have.Spec.RenewTime.Time), 3*time.Second)
		require.Greater(t, time.Since(have.Spec.AcquireTime.Time), 9*time.Minute)
		first.stop()
		second.stop()
	})
}

func TestReleaseHandsOverAfterTheLastAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := join(t, s, "first", time.Minute)
		synctest.Wait()
		second := join(t, s, "second", 0)
		go first.stop()
		elapse(59 * time.Second)
		require.True(t, first.leads(), "the leader still ends its work")
		require.False(t, second.leads(), "the Lease is renewed meanwhile")
		elapse(6 * time.Second) // a try takes place after at most 2.2 times Retry
		require.False(t, first.leads())
		require.True(t, second.leads())
		have, err := s.get()
		require.NoError(t, err)
		require.EqualValues(t, 1, *have.Spec.LeaseTransitions)
		second.stop()
		require.Empty(t, s.holder())
	})
}

func TestUnreachableLeaderIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := join(t, s, "first", 0)
		synctest.Wait()
		second := join(t, s, "second", 0)
		elapse(time.Second)
		first.fail(errors.New("connection refused"))
		began := time.Now()
		for !second.leads() {
			require.False(t, first.leads() && second.leads())
			elapse(100 * time.Millisecond)
		}
		require.False(t, first.leads(), "it ends before another begins")
		require.Less(t, time.Since(began), 25*time.Second)
		require.Len(t, first.warnings, 1, "the same error is reported once")
		first.fail(nil)
		elapse(time.Minute)
		require.False(t, first.leads())
		require.Equal(t, 1, first.terms)
		first.stop()
		second.stop()
	})
}

func TestShortOutageChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := join(t, s, "first", 0)
		synctest.Wait()
		first.fail(errors.New("connection refused"))
		elapse(8 * time.Second)
		first.fail(nil)
		elapse(time.Minute)
		require.True(t, first.leads())
		require.Equal(t, 1, first.terms)
		first.stop()
	})
}

func TestConflictIsNoWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		first := join(t, s, "first", 0)
		synctest.Wait()
		have, err := s.get()
		require.NoError(t, err)
		have.Labels = map[string]string{"edited": "yes"}
		_, err = s.put(have, false)
		require.NoError(t, err)
		elapse(time.Minute)
		require.True(t, first.leads())
		require.Equal(t, 1, first.terms)
		require.Empty(t, first.warnings)
		first.stop()
	})
}

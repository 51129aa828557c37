package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// oneLease is an API server with one Lease, which takes a write of the version that it has.
type oneLease struct {
	mu      sync.Mutex // guards what follows
	lease   *coordinationv1.Lease
	version int
	away    map[string]error // by elector: what its requests get; errHangs: nothing
}

var errHangs = errors.New("it does not answer")

// leasesOf are the Leases as an elector reaches them.
type leasesOf struct {
	*oneLease
	who string
}

func (l leasesOf) reach(ctx context.Context) error {
	l.mu.Lock()
	err := l.away[l.who]
	l.mu.Unlock()
	if errors.Is(err, errHangs) {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l leasesOf) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return l.lease.DeepCopy(), nil
}

func (l leasesOf) Create(ctx context.Context, in *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.put(ctx, in, "")
}

func (l leasesOf) Update(ctx context.Context, in *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.put(ctx, in, in.ResourceVersion)
}

func (l leasesOf) put(ctx context.Context, in *coordinationv1.Lease, version string) (*coordinationv1.Lease, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case version == "" && l.lease != nil:
		return nil, apierrors.NewAlreadyExists(leaseResource, in.Name)
	case l.lease != nil && version != l.lease.ResourceVersion:
		return nil, apierrors.NewConflict(leaseResource, in.Name, errors.New("it has changed"))
	}
	l.version++
	l.lease = in.DeepCopy()
	l.lease.ResourceVersion = fmt.Sprint(l.version)
	return l.lease.DeepCopy(), nil
}

// now is the Lease as it is.
func (l *oneLease) now() *coordinationv1.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.DeepCopy()
}

func (l *oneLease) reaches(who string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away[who] = err
}

// election is electors who stand for one Lease, and remember who writes.
type election struct {
	*oneLease
	t *testing.T

	leading sync.Mutex // guards what follows
	writes  map[string]bool
	most    int // that ever wrote at once
}

// timing of the tests, on a clock of their own: a leader that is gone is followed after 13 s to 23 s.
var timing = Election{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}

func hold(t *testing.T) *election {
	return &election{t: t, oneLease: &oneLease{away: map[string]error{}}, writes: map[string]bool{}}
}

// stand has an elector stand until its end is called, which returns when it has let go.
func (e *election) stand(who string) (end func()) {
	ctx, cancel := context.WithCancel(e.t.Context())
	w := &Writer{Identity: who, Election: timing, Log: slog.New(slog.DiscardHandler), leases: leasesOf{e.oneLease, who}}
	var standing sync.WaitGroup
	standing.Go(func() {
		for ctx.Err() == nil {
			w.serve(ctx, w.teller(), func(term context.Context) {
				e.set(who, true)
				<-term.Done()
				e.set(who, false)
			})
		}
	})
	return func() {
		cancel()
		standing.Wait()
	}
}

func (e *election) set(who string, writes bool) {
	e.leading.Lock()
	defer e.leading.Unlock()
	if e.writes[who] = writes; !writes {
		delete(e.writes, who)
	}
	e.most = max(e.most, len(e.writes))
}

// after is who writes after so long.
func (e *election) after(d time.Duration) string {
	<-time.After(d) // on the clock of the test
	synctest.Wait()
	e.leading.Lock()
	defer e.leading.Unlock()
	var all []string
	for who := range e.writes {
		all = append(all, who)
	}
	return strings.Join(all, ",")
}

func TestElection(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *election){
		"the first leads, the second follows one that ends": func(t *testing.T, e *election) {
			first := e.stand("a")
			require.Equal(t, "a", e.after(time.Second))
			defer e.stand("b")()
			require.Equal(t, "a", e.after(time.Hour), "as long as it renews its Lease")
			require.Zero(t, *e.now().Spec.LeaseTransitions)
			first()
			require.Nil(t, e.now().Spec.HolderIdentity, "it has let go")
			require.Equal(t, "b", e.after(4*time.Second), "and is not waited for")
			require.Equal(t, int32(1), *e.now().Spec.LeaseTransitions)
			require.Equal(t, int32(15), *e.now().Spec.LeaseDurationSeconds)
		},
		"one that is cut off stops, and is followed when its Lease is over": func(t *testing.T, e *election) {
			defer e.stand("a")()
			require.Equal(t, "a", e.after(time.Second))
			defer e.stand("b")()
			e.reaches("a", errors.New("refused"))
			require.Equal(t, "a", e.after(7*time.Second), "a short absence is nothing")
			e.reaches("a", nil)
			require.Equal(t, "a", e.after(time.Minute))
			e.reaches("a", errHangs)
			require.Empty(t, e.after(12*time.Second), "nobody: the one does not write any more, the other not yet")
			require.Equal(t, "b", e.after(12*time.Second))
			e.reaches("a", nil)
			require.Equal(t, "b", e.after(time.Hour), "who comes back waits for its turn")
		},
		"who finds another's name stops at once": func(t *testing.T, e *election) {
			defer e.stand("a")()
			require.Equal(t, "a", e.after(time.Second))
			other := e.now()
			other.Spec.HolderIdentity = new("c")
			_, err := leasesOf{e.oneLease, "c"}.Update(t.Context(), other, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Empty(t, e.after(5*time.Second))
			require.Equal(t, "a", e.after(20*time.Second), "c does not renew it")
		},
		"a Lease that somebody else touched is kept": func(t *testing.T, e *election) {
			defer e.stand("a")()
			require.Equal(t, "a", e.after(time.Second))
			touched := e.now()
			touched.Labels = map[string]string{"team": "mesh"}
			_, err := leasesOf{e.oneLease, "c"}.Update(t.Context(), touched, metav1.UpdateOptions{})
			require.NoError(t, err)
			for range 30 {
				require.Equal(t, "a", e.after(time.Second))
			}
			require.Equal(t, "mesh", e.now().Labels["team"])
		},
		"many at once": func(t *testing.T, e *election) {
			for i := range 5 {
				defer e.stand(fmt.Sprint(i))()
			}
			require.Len(t, e.after(5*time.Second), 1)
			for i := range 40 { // whoever leads is cut off for a while, some for long
				who := e.after(time.Second)
				e.reaches(who, []error{errHangs, errors.New("refused")}[i%2])
				e.after(time.Duration(i) * time.Second)
				e.reaches(who, nil)
				require.Len(t, e.after(30*time.Second), 1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := hold(t)
				test(t, e)
				require.Equal(t, 1, e.most, "two wrote at once")
			})
		})
	}
}

// lines are what was logged.
type lines struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestElectionTells: why the Lease cannot be had is told once, and again when it has been had since.
func TestElectionTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &lines{}
		o := &oneLease{away: map[string]error{"a": errors.New("you may not")}}
		w := &Writer{Identity: "a", Namespace: "istio-system", Election: timing, Log: slog.New(slog.NewTextHandler(said, nil)), leases: leasesOf{o, "a"}}
		ctx, cancel := context.WithCancel(t.Context())
		var standing sync.WaitGroup
		standing.Go(func() { w.serve(ctx, w.teller(), func(term context.Context) { <-term.Done() }) })
		for n, err := range []error{nil, errors.New("you may not"), nil} {
			<-time.After(8 * time.Second) // on the clock of the test: several tries
			synctest.Wait()
			require.Equal(t, (n+2)/2, strings.Count(said.String(), "you may not"), said.String())
			o.reaches("a", err)
		}
		cancel()
		standing.Wait()
		require.Contains(t, said.String(), "lease=istio-system/"+LeaseName)
	})
}

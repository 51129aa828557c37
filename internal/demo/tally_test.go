package demo

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// page returns an answer of the front page with a version of reviews.
func page(version string) Answer {
	return Answer{Service: frontend, Version: "v1", Instance: "frontend-1", Calls: []Answer{
		{Service: catalog, Version: "v1", Instance: "catalog-1", Attempt: 1},
		{Service: cart, Version: "v1", Instance: "cart-1", Calls: []Answer{{Service: catalog, Version: "v1", Instance: "catalog-2"}}},
		{Service: reviews, Version: version, Instance: "reviews-" + version + "-1"},
	}}
}

func TestTallyCountsWholeTree(t *testing.T) {
	tally := NewTally()
	for i := range 10 {
		require.True(t, tally.begin())
		version := "v1"
		if i < 3 {
			version = "v2"
		}
		tally.end(time.Now(), time.Duration(i+1)*time.Millisecond, 200, page(version), nil)
	}
	c := tally.Counts()
	require.Equal(t, 10, c.Requests)
	require.Zero(t, c.Failed)
	require.Equal(t, map[int]int{200: 10}, c.Statuses)
	require.Equal(t, 20, c.Versions["catalog/v1"])
	require.Equal(t, 10, c.Instances["catalog-2"])
	require.InDelta(t, 0.3, c.Share(reviews, "v2", "v1", "v2"), 1e-9)
	require.Zero(t, c.Share(ratings, "v1", "v1"))
	require.Equal(t, 6*time.Millisecond, c.Quantile(.5))
	require.Equal(t, 10*time.Millisecond, c.Quantile(1))
	require.Equal(t, "10 requests, 0 failed, p50 6.0 ms, p99 10.0 ms", c.String())
}

func TestTallyKeepsReasons(t *testing.T) {
	tally := NewTally()
	for i := range 2 * maxFailures {
		tally.begin()
		err := errors.New("503 no healthy upstream")
		if i == 0 {
			err = errors.New("connection reset")
		}
		tally.end(time.Now(), 0, 503, Answer{}, err)
	}
	c := tally.Counts()
	require.Equal(t, 2*maxFailures, c.Failed)
	require.Len(t, c.Failures, maxFailures)
	require.Equal(t, []string{"49 x 503 no healthy upstream", "1 x connection reset"}, c.reasons())
	require.Empty(t, c.Instances, "no application answered")
}

func TestTallyWaitsForRequestsInFlight(t *testing.T) {
	tally := NewTally()
	require.True(t, tally.begin())
	tally.close()
	require.False(t, tally.begin(), "closed")
	select {
	case <-tally.done:
		t.Fatal("a request is in flight")
	default:
	}
	tally.end(time.Now(), 0, 200, page("v1"), nil)
	<-tally.done
	require.Equal(t, 1, tally.Counts().Requests)
}

func TestMerge(t *testing.T) {
	total := newCounts()
	for range 2 {
		tally := NewTally()
		tally.begin()
		tally.end(time.Now(), time.Millisecond, 502, page("v3"), errors.New("no"))
		total.merge(tally.Counts())
	}
	require.Equal(t, 2, total.Requests)
	require.Equal(t, 2, total.Failed)
	require.Equal(t, 2, total.Statuses[502])
	require.Equal(t, 2, total.Instances["reviews-v3-1"])
	require.Len(t, total.Failures, 2)
	require.Equal(t, time.Millisecond, total.Quantile(1))
}

func TestRetriesAreCounted(t *testing.T) {
	c, a := newCounts(), page("v1")
	a.Calls[1].Calls[0].Attempt = 2
	c.add(a)
	c.Requests = 1
	require.Equal(t, 1, c.Retried)
	require.Equal(t, "1 request, 0 failed, 1 call retried by sidecars", c.String())
}

func TestTolerance(t *testing.T) {
	require.Zero(t, tolerance(0, 300))
	require.Zero(t, tolerance(100, 300))
	require.InDelta(t, 6.9, tolerance(10, 300), 0.1)
	require.Greater(t, tolerance(50, 100), tolerance(50, 1000))
}

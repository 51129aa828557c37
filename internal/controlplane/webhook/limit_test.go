package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// from makes a request of a client.
func from(ctx context.Context, client string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, Path, nil)
	r.RemoteAddr = client + ":1"
	return r
}

// TestLimits checks that a client with more requests than it may have at once leaves room for others, and that its further
// requests run when earlier ones end, or are refused.
func TestLimits(t *testing.T) {
	l, refused := newLimiter(), 0
	running, end := make(chan struct{}), make(chan struct{})
	h := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		running <- struct{}{}
		<-end
	}), l, func() { refused++ })
	codes := make(chan int, maxReviewsOfClient+2)
	send := func(client string) {
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, from(t.Context(), client))
			codes <- w.Code
		}()
	}
	for range maxReviewsOfClient {
		send("10.0.0.1")
		await.From(t, running)
	}
	send("10.0.0.1") // waits
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		c := l.clients["10.0.0.1"]
		return c.running == maxReviewsOfClient && len(c.waiting) == 1
	}, time.Minute, time.Millisecond)
	send("10.0.0.2") // runs
	await.From(t, running)

	l.mu.Lock()
	l.wait = 0
	l.mu.Unlock()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from(t.Context(), "10.0.0.1"))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, 1, refused)

	end <- struct{}{}
	end <- struct{}{} // perhaps that of the other client
	select {
	case <-running: // the one that waited
	case <-time.After(time.Minute):
		t.Fatal("no request ran after others ended")
	}
	close(end)
	for range maxReviewsOfClient + 2 {
		require.Equal(t, http.StatusOK, await.From(t, codes))
	}
	require.Empty(t, l.clients, "clients without requests are forgotten")
	require.Zero(t, l.running+l.waiting)
}

// TestFreePlacesGoToClientsWithFewRequests checks that clients which use all places, and have further requests that wait,
// delay another client only until one of their requests ends.
func TestFreePlacesGoToClientsWithFewRequests(t *testing.T) {
	l := newLimiter()
	var places []func()
	waiting := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var requests sync.WaitGroup
	defer requests.Wait()
	defer cancel()
	for i := range maxReviews / maxReviewsOfClient {
		client := fmt.Sprintf("10.0.0.%d", i)
		for range maxReviewsOfClient {
			leave, err := l.enter(ctx, client)
			require.NoError(t, err)
			places = append(places, leave)
		}
		for range maxReviewsOfClient {
			requests.Go(func() { _, _ = l.enter(ctx, client) }) // it never has a turn
		}
	}
	require.Eventually(t, func() bool { return waiting() == maxReviews }, time.Minute, time.Millisecond)
	entered := make(chan error, 1)
	requests.Go(func() { _, err := l.enter(ctx, "10.0.1.1"); entered <- err })
	require.Eventually(t, func() bool { return waiting() == maxReviews+1 }, time.Minute, time.Millisecond)
	places[0]()
	require.NoError(t, await.From(t, entered))
}

// TestWaitingIsBounded checks that a client cannot have any number of waiting requests, and that a waiting request ends with its client.
func TestWaitingIsBounded(t *testing.T) {
	l := newLimiter()
	l.running = maxReviews
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxWaitingOfClient)
	for range maxWaitingOfClient {
		go func() { _, err := l.enter(ctx, "10.0.0.1"); ended <- err }()
	}
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.waiting == maxWaitingOfClient
	}, time.Minute, time.Millisecond)
	_, err := l.enter(ctx, "10.0.0.1")
	require.ErrorIs(t, err, errBusy)
	cancel()
	for range maxWaitingOfClient {
		require.ErrorIs(t, await.From(t, ended), context.Canceled)
	}
	require.Empty(t, l.clients)
}

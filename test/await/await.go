// Package await bounds what tests wait for: what does not come fails its test, and tells where all goroutines stand,
// rather than that it hangs and takes all other tests along.
package await

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// patience is for what comes soon, on a busy machine later. Nothing waits for it where all is well.
const patience = 2 * time.Minute

// From receives from a channel; the zero value is also what comes of one that is closed.
func From[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		t.Fatalf("nothing has come within %s\n%s", patience, stacks())
	}
	return v
}

// To sends to a channel.
func To[T any](t testing.TB, c chan<- T, v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case c <- v:
	case <-timer.C:
		t.Fatalf("not taken within %s\n%s", patience, stacks())
	}
}

// End has a function return, which may wait for others: for what a server calls, as a test's body that has failed
// will not let go of it any more.
func End(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	From(t, done)
}

// Context is for streams of a test: it ends with the test, or when no stream of a test takes that long.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// stacks are those of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

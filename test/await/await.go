// Package await limits how long tests wait. A test that waits in vain fails with the stacks of all goroutines, instead of
// blocking all other tests.
package await

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// patience is the time limit: long enough for a busy machine. A test that passes never waits that long.
const patience = 2 * time.Minute

// From receives from a channel. A closed channel gives the zero value.
func From[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		t.Fatalf("nothing was received within %s\n%s", patience, stacks())
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

// End calls a function and waits for its return. It is for functions that a server calls: the body of a failed test no
// longer releases them.
func End(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	From(t, done)
}

// Context is for streams of a test. It ends with the test, or after twice the time limit.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

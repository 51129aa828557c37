package propagation

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// echoOf returns a storm of shadows of these services, whose watch returns what heard receives. sent are the baseline's
// events.
func echoOf(services []string, heard chan string, write func(context.Context) error) (e *stormEcho, sent *[]string) {
	sent = new([]string)
	e = &stormEcho{events: len(services), write: write, files: map[string][]func() error{}}
	e.next = func(ctx context.Context) (string, error) {
		select {
		case s := <-heard:
			return s, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	for n, s := range services {
		e.files[s] = append(e.files[s], func() error { *sent = append(*sent, s+string(rune('0'+n))); return nil })
	}
	return e, sent
}

// TestBaselineSendsEachWatchEvent checks that the baseline sends an event for each event of the watch, in its order, and
// no others.
func TestBaselineSendsEachWatchEvent(t *testing.T) {
	heard := make(chan string)
	e, sent := echoOf([]string{"a", "b", "a", "c"}, heard, func(ctx context.Context) error {
		for _, s := range []string{"b", "a", "c", "a"} {
			select {
			case heard <- s:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	require.NoError(t, e.run(t.Context()))
	require.Equal(t, []string{"b1", "a0", "c3", "a2"}, *sent)
}

// TestStormEndsIfShadowFails checks that the storm ends with the error if a shadow cannot be written or the watch
// returns an unexpected service.
func TestStormEndsIfShadowFails(t *testing.T) {
	e, sent := echoOf([]string{"a"}, nil, func(context.Context) error { return errors.New("no quorum") })
	require.ErrorContains(t, e.run(t.Context()), "no quorum")
	require.Empty(t, *sent)

	ctx, cancel := context.WithCancel(t.Context())
	e, sent = echoOf([]string{"a"}, nil, func(context.Context) error { cancel(); return nil })
	require.ErrorIs(t, e.run(ctx), context.Canceled, "writes alone are not enough")
	require.Empty(t, *sent)

	heard := make(chan string, 1)
	heard <- "other"
	e, sent = echoOf([]string{"a"}, heard, func(context.Context) error { return nil })
	require.ErrorContains(t, e.run(t.Context()), `unexpected event of the API server for "other"`)
	require.Empty(t, *sent)
}

package engine

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFailuresOfOneResource: what is wrong with a resource in several ways is told in all of them, until it is
// translated again.
func TestFailuresOfOneResource(t *testing.T) {
	e := &Engine{failures: map[failureKey]Failure{}, log: slog.New(slog.DiscardHandler)}
	said := func() map[string]string {
		out := map[string]string{}
		for _, f := range e.failures {
			out[f.Name] = f.Error
		}
		return out
	}
	e.noteFailures(&translation{failed: []Failure{
		{Name: "a", Error: "a route", routes: true}, {Name: "b", Error: "another"}, {Name: "a", Error: "a patch", patch: true},
	}})
	require.Equal(t, map[string]string{"a": "a route; a patch", "b": "another"}, said())
	e.noteFailures(&translation{failed: []Failure{{Name: "a", Error: "a patch", patch: true}}})
	require.Equal(t, map[string]string{"a": "a patch", "b": "another"}, said())
}

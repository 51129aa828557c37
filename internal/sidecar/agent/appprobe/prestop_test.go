package appprobe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// TestPreStopHooks checks that each container is held, and that its own hook runs after that.
func TestPreStopHooks(t *testing.T) {
	events := make(chan string, 4)
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { events <- "hook" }))
	t.Cleanup(app.Close)
	t.Setenv(ProbersVariable, `{"/app-lifecycle/http/prestopz/key":{"httpGet":{"path":"/","port":`+portOf(app.URL)+`}},`+
		`"/app-lifecycle/sleeps/prestopz":{"sleep":{"seconds":1}}}`)
	for _, tc := range []struct {
		container, key string
		want           []string
	}{
		{"none", "", []string{"begins", "held", "ends"}},
		{"http", "/key", []string{"begins", "held", "hook", "ends"}},
		{"http", "", []string{"begins", "held", "ends"}},
		{"sleeps", "", []string{"begins", "held", "ends"}},
	} {
		t.Run(tc.container+tc.key, func(t *testing.T) {
			mux := http.NewServeMux()
			begin := func() (end func()) {
				events <- "begins"
				return func() { events <- "ends" }
			}
			hold := func(context.Context) { events <- "held" }
			require.NoError(t, Register(mux, "127.0.0.1", Draining{Hold: hold, Begin: begin, Released: never.Released}))
			s := httptest.NewServer(mux)
			defer s.Close()
			start := time.Now()
			require.Equal(t, http.StatusOK, statusAt(t, s.URL+"/app-lifecycle/"+tc.container+"/prestopz"+tc.key))
			for _, want := range tc.want {
				require.Equal(t, want, await.From(t, events))
			}
			if tc.container == "sleeps" {
				require.GreaterOrEqual(t, time.Since(start), time.Second)
			}
		})
	}
}

// TestOtherHooksAreNotHeld checks paths that are no preStop hook of a container.
func TestOtherHooksAreNotHeld(t *testing.T) {
	s := startServer(t, "")
	for _, path := range []string{"/app-lifecycle/a/poststartz", "/app-lifecycle/a/b/prestopz", "/app-health/a/prestopz", "/app-lifecycle/a/prestopz/guess", "/app-lifecycle/a/prestopzz"} {
		require.Equal(t, http.StatusNotFound, statusAt(t, s.URL+path), path)
	}
}

// TestOnlyPreStopHooksSleep checks the answer to a probe that sleeps.
func TestOnlyPreStopHooksSleep(t *testing.T) {
	t.Setenv(ProbersVariable, `{"/app-health/a/livez":{"sleep":{"seconds":1}}}`)
	require.ErrorContains(t, Register(http.NewServeMux(), "127.0.0.1", never), "only a preStop hook can sleep")
}

// TestEndedApplications checks that probes of an application that has closed its port fail until it may end.
func TestEndedApplications(t *testing.T) {
	app := httptest.NewServer(http.NotFoundHandler())
	port := portOf(app.URL)
	t.Setenv(ProbersVariable, `{"/app-health/http/readyz":{"httpGet":{"path":"/","port":`+port+`}},`+
		`"/app-health/tcp/readyz":{"tcpSocket":{"port":`+port+`}},"/app-health/grpc/readyz":{"grpc":{"port":`+port+`}}}`)
	var released atomic.Bool
	mux := http.NewServeMux()
	require.NoError(t, Register(mux, "127.0.0.1", Draining{Hold: never.Hold, Begin: never.Begin, Released: released.Load}))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for _, tc := range []struct {
		name            string
		ended, released bool
		want            int
	}{
		{"answers what it answers", false, true, http.StatusNotFound},
		{"ended too early", true, false, http.StatusInternalServerError},
		{"may end", true, true, http.StatusOK},
	} {
		if tc.ended {
			app.Close()
		}
		released.Store(tc.released)
		for _, probe := range []string{"http", "tcp", "grpc"} {
			if !tc.ended && probe != "http" {
				continue
			}
			require.Equal(t, tc.want, statusAt(t, s.URL+"/app-health/"+probe+"/readyz"), tc.name+": "+probe)
		}
	}
}

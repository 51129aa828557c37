package changelog

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestAPIServer(t *testing.T) {
	m := NewMetrics()
	is := APIServer{Failing: map[string]time.Duration{"Pod": 1500 * time.Millisecond, "Service": 0}, Quiet: time.Minute}
	m.WatchAPIServer(func() APIServer { return is })
	const failing = `
# HELP moonsail_apiserver_failing_seconds How long requests to the Kubernetes API server for a kind have failed; 0: the last one was answered.
# TYPE moonsail_apiserver_failing_seconds gauge
moonsail_apiserver_failing_seconds{kind="Pod"} 1.5
moonsail_apiserver_failing_seconds{kind="Service"} 0
`
	compare := func(want string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(m.Registry, strings.NewReader(want),
			"moonsail_apiserver_failing_seconds", "moonsail_apiserver_heartbeat_age_seconds"))
	}
	compare(failing)
	is.Beats = true
	compare(failing + `
# HELP moonsail_apiserver_heartbeat_age_seconds Time since the last write of the heartbeat was observed by its watch, which shares its connection with all others.
# TYPE moonsail_apiserver_heartbeat_age_seconds gauge
moonsail_apiserver_heartbeat_age_seconds 60
`)
}

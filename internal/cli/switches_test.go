package cli

import (
	"bytes"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/engine"
)

// TestPilotSwitches: each of istiod's switches does what it says, or is told to mean nothing.
func TestPilotSwitches(t *testing.T) {
	const honoured, meaningless = "istiod's switch is honoured", "istiod's switch has no meaning here"
	for name, tc := range map[string]struct {
		env      map[string]string
		debounce engine.Debounce
		senders  int
		says     []string
		fails    string
	}{
		"nothing is set": {},
		"debounce": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "100ms"},
			debounce: engine.Debounce{After: 100 * time.Millisecond, Max: 10 * time.Second}, says: []string{honoured, "none has come for 100ms"}},
		"bounded": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "100ms", "PILOT_DEBOUNCE_MAX": "1s"},
			debounce: engine.Debounce{After: 100 * time.Millisecond, Max: time.Second}, says: []string{"no event waits longer than 1s"}},
		"switched off": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "0s", "PILOT_DEBOUNCE_MAX": "1s"},
			debounce: engine.Debounce{Max: 10 * time.Second}},
		"a bound alone": {env: map[string]string{"PILOT_DEBOUNCE_MAX": "1s"}, says: []string{meaningless, "PILOT_DEBOUNCE_AFTER is not set"}},
		"endpoints pass": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "1s", "PILOT_ENABLE_EDS_DEBOUNCE": "false"},
			debounce: engine.Debounce{After: time.Second, Max: 10 * time.Second, EndpointsPass: true}, says: []string{"endpoints are taken at once"}},
		"endpoints wait": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "1s", "PILOT_ENABLE_EDS_DEBOUNCE": "true"},
			debounce: engine.Debounce{After: time.Second, Max: 10 * time.Second}, says: []string{"endpoints wait as other events do"}},
		"throttle":         {env: map[string]string{"PILOT_PUSH_THROTTLE": "1"}, senders: 1, says: []string{honoured, "at most 1 proxies"}},
		"ample throttle":   {env: map[string]string{"PILOT_PUSH_THROTTLE": "100000"}, senders: runtime.GOMAXPROCS(0), says: []string{honoured}},
		"no throttle":      {env: map[string]string{"PILOT_PUSH_THROTTLE": "0"}, fails: "PILOT_PUSH_THROTTLE=0: 0 would push nothing"},
		"CDS cache":        {env: map[string]string{"PILOT_ENABLE_CDS_CACHE": "false"}, says: []string{meaningless, "PILOT_ENABLE_CDS_CACHE", "a cluster is encoded once"}},
		"RDS cache":        {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "true"}, says: []string{meaningless, "PILOT_ENABLE_RDS_CACHE", "a route is encoded once"}},
		"queue metrics":    {env: map[string]string{"ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS": "true"}, says: []string{meaningless, "always there"}},
		"no duration":      {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "soon"}, fails: "PILOT_DEBOUNCE_AFTER=soon"},
		"before the event": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "-1s"}, fails: "negative"},
		"neither":          {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "maybe"}, fails: "PILOT_ENABLE_RDS_CACHE=maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := controlplane.Options{}
			err := pilotSwitches(&o, func(k string) (string, bool) { v, ok := tc.env[k]; return v, ok }, slog.New(slog.NewTextHandler(&log, nil)))
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.senders, o.Senders)
			if tc.debounce.After > 0 || o.Debounce.After > 0 {
				require.Equal(t, tc.debounce, o.Debounce)
			}
			for _, s := range tc.says {
				require.Contains(t, log.String(), s)
			}
			if len(tc.env) == 0 {
				require.Empty(t, log.String())
			}
		})
	}
}

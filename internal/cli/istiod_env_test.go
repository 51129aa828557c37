package cli

import (
	"bytes"
	"cmp"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
)

// TestPilotSwitches: each of istiod's switches does what it says, or is told to mean nothing.
func TestPilotSwitches(t *testing.T) {
	const honoured, meaningless = "istiod's switch is honoured", "istiod's switch has no meaning here"
	usual := model.DefaultAutoAddresses()
	for name, tc := range map[string]struct {
		env      map[string]string
		debounce engine.Debounce
		given    model.AutoAddresses // zero: the default
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
		"throttle":       {env: map[string]string{"PILOT_PUSH_THROTTLE": "1"}, senders: 1, says: []string{honoured, "at most 1 proxies"}},
		"ample throttle": {env: map[string]string{"PILOT_PUSH_THROTTLE": "100000"}, senders: runtime.GOMAXPROCS(0), says: []string{honoured}},
		"no throttle":    {env: map[string]string{"PILOT_PUSH_THROTTLE": "0"}, fails: "PILOT_PUSH_THROTTLE=0: 0 would push nothing"},
		"CDS cache":      {env: map[string]string{"PILOT_ENABLE_CDS_CACHE": "false"}, says: []string{meaningless, "PILOT_ENABLE_CDS_CACHE", "encodes a cluster once"}},
		"RDS cache":      {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "true"}, says: []string{meaningless, "PILOT_ENABLE_RDS_CACHE", "encodes a route once"}},
		"queue metrics":  {env: map[string]string{"ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS": "true"}, says: []string{meaningless, "always there"}},
		"addresses":      {env: map[string]string{"PILOT_ENABLE_IP_AUTOALLOCATE": "true"}, says: []string{honoured, "that is so without it, too"}},
		"no addresses": {env: map[string]string{"PILOT_ENABLE_IP_AUTOALLOCATE": "false"}, says: []string{honoured, "get none", "DNS_AUTO_ALLOCATE"},
			given: model.AutoAddresses{Off: true, V4: usual.V4, V6: usual.V6}},
		"other addresses": {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0/16", "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "fd00:9::/64"},
			given: model.AutoAddresses{V4: netip.MustParsePrefix("10.9.0.0/16"), V6: netip.MustParsePrefix("fd00:9::/64")}, says: []string{honoured, "one of 10.9.1.0/16", "one of fd00:9::/64"}},
		"no range":         {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0"}, fails: "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX=10.9.1.0: not an address range"},
		"no room":          {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV4_PREFIX": "10.9.1.0/31"}, fails: "the range is too small"},
		"other family":     {env: map[string]string{"PILOT_IP_AUTOALLOCATE_IPV6_PREFIX": "10.9.1.0/24"}, fails: "of the other IP family"},
		"no duration":      {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "soon"}, fails: "PILOT_DEBOUNCE_AFTER=soon"},
		"before the event": {env: map[string]string{"PILOT_DEBOUNCE_AFTER": "-1s"}, fails: "negative"},
		"neither":          {env: map[string]string{"PILOT_ENABLE_RDS_CACHE": "maybe"}, fails: "PILOT_ENABLE_RDS_CACHE=maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := controlplane.Options{Mesh: model.DefaultMesh()}
			err := pilotSwitches(&o, func(k string) (string, bool) { v, ok := tc.env[k]; return v, ok }, slog.New(slog.NewTextHandler(&log, nil)))
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.senders, o.Senders)
			require.Equal(t, cmp.Or(tc.given, usual), o.Mesh.AutoAddresses)
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

//go:build linux

package intercept

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/moonsail/moonsail/test/netns"
)

// probing returns a configuration with the rule of Check.
func probing(t *testing.T, change func(*Settings)) *Config {
	t.Helper()
	s := Default()
	change(&s)
	c, err := s.Parse()
	require.NoError(t, err)
	c.Probe, c.IPv6 = true, true
	return c
}

// TestProbeFollowsExemptions checks that the rule of Check comes after that of Envoy's calls to the application: Envoy
// must not call itself.
func TestProbeFollowsExemptions(t *testing.T) {
	for _, mode := range []string{ModeRedirect, ModeTProxy} {
		text := Plan(probing(t, func(s *Settings) { s.Mode = mode })).NFT()
		before, after, found := strings.Cut(text, "ip daddr 127.0.0.6/32 tcp dport 15002 meta mark != 1337 counter redirect to :15006")
		require.True(t, found, text)
		require.Contains(t, before, `oifname "lo" ip saddr 127.0.0.6/32 counter return`)
		require.Contains(t, after, "meta skuid 1337 counter return")
	}
}

// TestCheck checks as a process without privileges, in each mode, with rules that intercept as little as possible.
func TestCheck(t *testing.T) {
	h := netns.New(t, true).Host()
	check := func(c *Config, patient bool) (err error) {
		h.Do(t, func() {
			_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 2000, 2000, 2000)
			require.Zero(t, e)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if !patient {
				cancel()
			}
			err = Check(ctx, c)
		})
		return err
	}
	for name, change := range map[string]func(*Settings){
		"redirect": func(*Settings) {},
		"tproxy":   func(s *Settings) { s.Mode = ModeTProxy },
		"nothing":  func(s *Settings) { s.IncludeInboundPorts, s.IncludeOutboundIPRanges = "", "" },
		"ports":    func(s *Settings) { s.InboundPort, s.OutboundPort = "16006", "16001" },
	} {
		t.Run(name, func(t *testing.T) {
			c := probing(t, change)
			require.ErrorIs(t, check(c, false), ErrNotInForce)
			require.NoError(t, Within("/var/run/netns/"+h.Name, func() error {
				_, err := Apply(t.Context(), c, NFTables)
				return err
			}))
			require.NoError(t, check(c, true))
			var there bool
			h.Do(t, func() {
				var err error
				there, err = InForce(t.Context())
				require.NoError(t, err)
			})
			require.True(t, there)
			undo(t, h)
			h.Do(t, func() {
				var err error
				there, err = InForce(t.Context())
				require.NoError(t, err)
			})
			require.False(t, there)
		})
	}
	require.NoError(t, check(probing(t, func(s *Settings) { s.Mode = ModeNone }), false), "mode NONE has no rules")
}

// TestWithinMissingNamespace checks that the error names the file.
func TestWithinMissingNamespace(t *testing.T) {
	err := Within("/var/run/netns/missing", func() error { return nil })
	require.ErrorContains(t, err, "/var/run/netns/missing")
	require.ErrorIs(t, err, unix.ENOENT)
}

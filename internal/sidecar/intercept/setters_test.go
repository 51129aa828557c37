package intercept

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeKernel accepts rules of one backend or none, and records the requests.
type fakeKernel struct {
	nft, tables error
	left        bool     // nftables has rules of an earlier run
	requests    []string // "BACKEND true": to set rules; false: to remove them
}

func (r *fakeKernel) setters() setters {
	record := func(what string, s *Ruleset) {
		r.requests = append(r.requests, fmt.Sprint(what, " ", len(s.Chains) > 0))
	}
	return setters{
		nft:         func(s *Ruleset) error { record("nft", s); return r.nft },
		tables:      func(_ context.Context, s *Ruleset) error { record("iptables", s); return r.tables },
		nftThere:    func() (bool, error) { return r.left, nil },
		tablesThere: func(context.Context) bool { return false },
	}
}

// TestFallBack checks that Auto falls back to iptables on any failure of nftables, except if the process may not set
// rules at all. A backend that is chosen explicitly is used or fails.
func TestFallBack(t *testing.T) {
	missing := fmt.Errorf("conn.Receive: netlink receive: %w", syscall.ENOENT) // the module of an expression is missing
	for name, tc := range map[string]struct {
		kernel fakeKernel
		wanted Backend
		used   Backend
		asked  []string
		want   string // in the error; empty: none
	}{
		"nftables":                  {fakeKernel{}, Auto, NFTables, []string{"nft true"}, ""},
		"no nftables":               {fakeKernel{nft: syscall.EPROTONOSUPPORT}, Auto, IPTables, []string{"nft true", "iptables true"}, ""},
		"an expression is refused":  {fakeKernel{nft: missing}, Auto, IPTables, []string{"nft true", "iptables true"}, ""},
		"nor iptables":              {fakeKernel{nft: missing, tables: exec.ErrNotFound}, Auto, IPTables, []string{"nft true", "iptables true"}, "nft_redir"},
		"an earlier run":            {fakeKernel{left: true}, Auto, NFTables, []string{"nft true"}, ""},
		"not allowed":               {fakeKernel{nft: syscall.EPERM}, Auto, NFTables, []string{"nft true"}, "CAP_NET_ADMIN"},
		"nftables is chosen":        {fakeKernel{nft: missing}, NFTables, NFTables, []string{"nft true"}, "nftables"},
		"iptables is chosen":        {fakeKernel{}, IPTables, IPTables, []string{"iptables true"}, ""},
		"iptables is chosen, fails": {fakeKernel{tables: errors.New("no chain")}, IPTables, IPTables, []string{"iptables true"}, "no chain"},
	} {
		t.Run(name, func(t *testing.T) {
			used, err := tc.kernel.setters().set(t.Context(), &Ruleset{Chains: []Chain{{}}}, tc.wanted)
			require.Equal(t, tc.used, used)
			require.Equal(t, tc.asked, tc.kernel.requests)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, explain(err), tc.want)
		})
	}
}

// TestOneSetOfRules checks that rules of nftables are removed once iptables has the rules, and not before.
func TestOneSetOfRules(t *testing.T) {
	for failed, asked := range map[error][]string{
		nil:                   {"nft true", "iptables true", "nft false"},
		errors.New("refused"): {"nft true", "iptables true"},
	} {
		k := fakeKernel{left: true, tables: failed}
		s, first := k.setters(), true
		set := s.nft
		s.nft = func(r *Ruleset) error {
			err := set(r)
			if first {
				first, err = false, syscall.EOPNOTSUPP
			}
			return err
		}
		_, err := s.set(t.Context(), &Ruleset{Chains: []Chain{{}}}, Auto)
		require.Equal(t, failed != nil, err != nil)
		require.Equal(t, asked, k.requests)
	}
}

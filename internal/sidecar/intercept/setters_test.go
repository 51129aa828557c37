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

// refuses is a kernel that takes rules one way or none, and what it was asked for.
type refuses struct {
	nft, tables error
	left        bool // rules of nftables are there from before
	asked       []string
}

func (r *refuses) setters() setters {
	say := func(what string, s *Ruleset) {
		r.asked = append(r.asked, fmt.Sprint(what, " ", len(s.Chains) > 0))
	}
	return setters{
		nft:         func(s *Ruleset) error { say("nft", s); return r.nft },
		tables:      func(_ context.Context, s *Ruleset) error { say("iptables", s); return r.tables },
		nftThere:    func() (bool, error) { return r.left, nil },
		tablesThere: func(context.Context) bool { return false },
	}
}

// TestFallBack: Auto goes over to iptables whatever nftables cannot do, and to nothing where the
// process may not set rules at all. Who names a way gets that or an error.
func TestFallBack(t *testing.T) {
	missing := fmt.Errorf("conn.Receive: netlink receive: %w", syscall.ENOENT) // of an expression whose module is not there
	for name, tc := range map[string]struct {
		kernel refuses
		wanted Backend
		used   Backend
		asked  []string
		says   string
	}{
		"nftables":                  {refuses{}, Auto, NFTables, []string{"nft true"}, ""},
		"no nftables":               {refuses{nft: syscall.EPROTONOSUPPORT}, Auto, IPTables, []string{"nft true", "iptables true"}, ""},
		"an expression is refused":  {refuses{nft: missing}, Auto, IPTables, []string{"nft true", "iptables true"}, ""},
		"nor iptables":              {refuses{nft: missing, tables: exec.ErrNotFound}, Auto, IPTables, []string{"nft true", "iptables true"}, "nft_redir"},
		"rules of before":           {refuses{left: true}, Auto, NFTables, []string{"nft true"}, ""},
		"not allowed":               {refuses{nft: syscall.EPERM}, Auto, NFTables, []string{"nft true"}, "CAP_NET_ADMIN"},
		"nftables was named":        {refuses{nft: missing}, NFTables, NFTables, []string{"nft true"}, "nftables"},
		"iptables was named":        {refuses{}, IPTables, IPTables, []string{"iptables true"}, ""},
		"iptables was named, fails": {refuses{tables: errors.New("no chain")}, IPTables, IPTables, []string{"iptables true"}, "no chain"},
	} {
		t.Run(name, func(t *testing.T) {
			used, err := tc.kernel.setters().set(t.Context(), &Ruleset{Chains: []Chain{{}}}, tc.wanted)
			require.Equal(t, tc.used, used)
			require.Equal(t, tc.asked, tc.kernel.asked)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, explain(err), tc.says)
		})
	}
}

// TestOneSetOfRules: what was set by nftables goes once iptables has the rules, and not before.
func TestOneSetOfRules(t *testing.T) {
	for failed, asked := range map[error][]string{
		nil:                   {"nft true", "iptables true", "nft false"},
		errors.New("refused"): {"nft true", "iptables true"},
	} {
		k := refuses{left: true, tables: failed}
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
		require.Equal(t, asked, k.asked)
	}
}

package intercept

import (
	"context"
	"errors"
	"fmt"
)

// setters are the ways of setting rules. A ruleset without chains takes ours away.
type setters struct {
	nft      func(*Ruleset) error // in one transaction
	nftThere func() (bool, error) // whether there are rules of ours in nftables

	tables      func(context.Context, *Ruleset) error // one table after the other
	tablesThere func(context.Context) bool            // whether there are rules of ours in iptables

	routes func(*Ruleset) error // what rules need besides
}

var ofKernel = setters{
	nft: applyNFT, nftThere: nftThere,
	tables: runner(run).restore, tablesThere: runner(run).there,
	routes: setRoutes,
}

// apply sets all that rules are, or nothing: half of them would lead connections to nobody. What
// was set is taken away even where ctx has ended.
func (s setters) apply(ctx context.Context, rules *Ruleset, b Backend) (Backend, error) {
	used, err := b, s.routes(rules)
	if err == nil {
		used, err = s.set(ctx, rules, b)
	}
	if err == nil {
		return used, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
	defer cancel()
	left := s.undo(ctx)
	if left == nil || forbidden(err) && forbidden(left) { // who may set none need not hear of it twice
		return used, err
	}
	return used, errors.Join(err, fmt.Errorf("and some may be left: %w", left))
}

func (s setters) undo(ctx context.Context) error {
	there, err := s.nftThere()
	if there {
		err = s.nft(&Ruleset{})
	}
	if unsupported(err) {
		err = nil
	}
	none := &Ruleset{IPv6: true}
	return errors.Join(by(NFTables, err), by(IPTables, s.tables(ctx, none)), s.routes(none))
}

// set sets rules, takes away those that were set the other way, and says with what. Auto asks the
// kernel for all of them: one may have nftables without what a rule needs (nft_redir, nft_tproxy),
// and then refuses the transaction as a whole.
func (s setters) set(ctx context.Context, rules *Ruleset, b Backend) (Backend, error) {
	if b == IPTables {
		return b, s.setTables(ctx, rules)
	}
	err := by(NFTables, s.nft(rules))
	if err == nil {
		return NFTables, s.leaveTables(ctx)
	}
	if b != Auto || forbidden(err) {
		return NFTables, err
	}
	if other := s.setTables(ctx, rules); other != nil {
		return IPTables, errors.Join(err, other)
	}
	return IPTables, nil
}

// setTables sets rules by iptables, and takes away what was set by nftables before: rules of both
// would be in force.
func (s setters) setTables(ctx context.Context, rules *Ruleset) error {
	if err := by(IPTables, s.tables(ctx, rules)); err != nil {
		return err
	}
	if there, err := s.nftThere(); err != nil || !there {
		return nil // a kernel without nftables has none of them
	}
	return by(NFTables, s.nft(&Ruleset{}))
}

// leaveTables takes away what was set by iptables before.
func (s setters) leaveTables(ctx context.Context) error {
	if !s.tablesThere(ctx) {
		return nil
	}
	return by(IPTables, s.tables(ctx, &Ruleset{IPv6: true}))
}

func by(b Backend, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", b, err)
}

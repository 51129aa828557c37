package intercept

import (
	"context"
	"errors"
	"fmt"
)

// setters are the functions that set rules. A ruleset without chains removes all rules.
type setters struct {
	nft      func(*Ruleset) error // in one transaction
	nftThere func() (bool, error) // whether nftables has rules of Moonsail

	tables      func(context.Context, *Ruleset) error // one table after the other
	tablesThere func(context.Context) bool            // whether iptables has rules of Moonsail

	routes func(*Ruleset) error // policy routing and addresses
}

var ofKernel = setters{
	nft: applyNFT, nftThere: nftThere,
	tables: runner(run).restore, tablesThere: runner(run).there,
	routes: setRoutes,
}

// apply sets all rules or none, because incomplete rules would redirect connections to a closed port. It removes
// incomplete rules even if ctx has ended.
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
	if left == nil || forbidden(err) && forbidden(left) { // without permission there is nothing to report twice
		return used, err
	}
	return used, errors.Join(err, fmt.Errorf("and some rules may be left: %w", left))
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

// set sets rules, removes those of the other backend, and returns the backend. Auto offers all rules to nftables: a
// kernel without a needed module (nft_redir, nft_tproxy) refuses the transaction as a whole.
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

// setTables sets rules with iptables, and removes those of nftables: both would apply.
func (s setters) setTables(ctx context.Context, rules *Ruleset) error {
	if err := by(IPTables, s.tables(ctx, rules)); err != nil {
		return err
	}
	if there, err := s.nftThere(); err != nil || !there {
		return nil // a kernel without nftables has no rules there
	}
	return by(NFTables, s.nft(&Ruleset{}))
}

// leaveTables removes the rules of iptables.
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

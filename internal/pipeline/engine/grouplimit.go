package engine

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
)

// What a proxy says of itself decides which scopes it has, and each that nobody had before is computed and kept. So
// whoever has one certificate of the mesh could have any number of them, by saying something else on each stream.

// DefaultGroupsPerIdentity is Options.ScopesPerIdentity where nothing is said: far more than the workloads of one service
// account have, of which those of a Deployment share two.
const DefaultGroupsPerIdentity = 4096

// TooManyGroups is the error of Bind for a proxy whose identity has opened as many scopes as it may.
type TooManyGroups struct {
	Namespace, Account string
	Limit              int
}

func (e *TooManyGroups) Error() string {
	return fmt.Sprintf("proxies of service account %s in namespace %s have %d scopes of configuration already: "+
		"they differ in what they say of themselves (labels, locality, node and the like); --max-scopes-per-identity is the limit",
		e.Account, e.Namespace, e.Limit)
}

// owner is the identity for which a scope was opened; zero: somebody who has not shown any, such as on the port in plain
// text, where everybody is believed.
type owner struct{ namespace, account string }

func ownerOf(p *model.Proxy) owner {
	if !p.Verified {
		return owner{}
	}
	return owner{p.Namespace, p.ServiceAccount}
}

// admits tells whether n more scopes may be opened for a proxy. Those that nobody uses make room first.
func (e *Engine) admits(p *model.Proxy, n int) error {
	o, limit := ownerOf(p), e.opts.GroupsPerIdentity
	if o == (owner{}) || limit <= 0 || n == 0 || e.opened[o]+n <= limit {
		return nil
	}
	for k, s := range e.groups {
		if s.owner == o && s.users == 0 {
			e.closeGroup(k)
		}
	}
	if e.opened[o]+n <= limit {
		return nil
	}
	return &TooManyGroups{o.namespace, o.account, limit}
}

// missing is how many of a proxy's scopes are to be opened.
func (e *Engine) missing(keys [2]derive.GroupKey) int {
	n := 0
	for _, k := range e.cohort(keys) {
		if e.groups[k] == nil {
			n++
		}
	}
	return n
}

func (e *Engine) closeGroup(k derive.GroupKey) {
	if o := e.groups[k].owner; o != (owner{}) {
		if e.opened[o]--; e.opened[o] == 0 {
			delete(e.opened, o)
		}
	}
	e.deriver.Close(k)
	delete(e.groups, k)
	e.forgetFailures(k)
}

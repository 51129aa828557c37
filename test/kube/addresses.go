package main

import (
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// addresses assigns pods an address of each of some ranges. An address that was released is assigned again only after
// all others.
type addresses struct {
	mu    sync.Mutex // guards the fields below
	pools []pool
	pods  map[types.UID][]netip.Addr
	taken map[netip.Addr]types.UID
}

type pool struct {
	netip.Prefix
	last netip.Addr // was given out last
}

func newAddresses(prefixes []netip.Prefix) *addresses {
	a := &addresses{pods: map[types.UID][]netip.Addr{}, taken: map[netip.Addr]types.UID{}}
	for _, p := range prefixes {
		a.pools = append(a.pools, pool{Prefix: p, last: p.Addr()})
	}
	return a
}

// give returns a pod's addresses, the same ones each time.
func (a *addresses) give(pod types.UID) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if got := a.pods[pod]; len(got) > 0 {
		return got, nil
	}
	var list []netip.Addr
	for i := range a.pools {
		addr, err := a.next(&a.pools[i])
		if err != nil {
			return nil, err
		}
		list = append(list, addr)
	}
	a.record(pod, list)
	return list, nil
}

// next returns the next free address after the one assigned last.
func (a *addresses) next(p *pool) (netip.Addr, error) {
	start := p.after(p.last)
	for addr := start; ; {
		if _, ok := a.taken[addr]; !ok {
			p.last = addr
			return addr, nil
		}
		if addr = p.after(addr); addr == start {
			return netip.Addr{}, fmt.Errorf("all addresses of %s are in use", p.Prefix)
		}
	}
}

// after continues at the start of the range, whose first address is left out.
func (p *pool) after(addr netip.Addr) netip.Addr {
	if next := addr.Next(); p.Contains(next) {
		return next
	}
	return p.Addr().Next()
}

// have records which addresses a pod has.
func (a *addresses) have(pod types.UID, list []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pods[pod]) == 0 {
		a.record(pod, list)
	}
}

// record requires the lock.
func (a *addresses) record(pod types.UID, list []netip.Addr) {
	a.pods[pod] = list
	for _, addr := range list {
		a.taken[addr] = pod
	}
}

// release frees a pod's addresses.
func (a *addresses) release(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, addr := range a.pods[pod] {
		if a.taken[addr] == pod {
			delete(a.taken, addr)
		}
	}
	delete(a.pods, pod)
}

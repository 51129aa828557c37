package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// translator converts between the envoy of these tests, which uses delta, and a state-of-the-world
// stream: all names in each request, and removal of what a complete response omits.
type translator struct {
	names [kinds]map[string]bool
	nonce [kinds][]byte
}

func (x *translator) connect() {
	x.names, x.nonce = [kinds]map[string]bool{}, [kinds][]byte{}
	for k := range x.names {
		x.names[k] = map[string]bool{}
	}
}

func (x *translator) request(r Request) Request {
	k := slices.Index(urls[:], string(r.TypeURL))
	for _, n := range r.Unsubscribe {
		delete(x.names[k], string(n))
	}
	for _, n := range r.Subscribe {
		x.names[k][string(n)] = true
	}
	return Request{TypeURL: r.TypeURL, Nonce: x.nonce[k], Error: r.Error,
		Names: slices2(slices.Sorted(maps.Keys(x.names[k]))...)}
}

func (x *translator) response(e *envoy, r Response) Response {
	k := kindOfType(r.Type)
	x.nonce[k] = fmt.Append(nil, r.Nonce)
	if !resource.Types[r.Type].FullState {
		return r
	}
	has := map[string]held{}
	maps.Copy(has, map[kind]map[string]held{cds: e.clusters, lds: e.listeners}[k])
	for en := range (&flight{parts: r.Parts}).entries() {
		delete(has, en.Name)
	}
	r.Removed = slices.Sorted(maps.Keys(has))
	return r
}

// TestEverySotwProxyConverges is TestEveryProxyConverges for state-of-the-world streams.
func TestEverySotwProxyConverges(t *testing.T) {
	for _, bad := range []bool{false, true} {
		t.Run(fmt.Sprintf("sotw,bad=%t", bad), func(t *testing.T) {
			for seed := range seeds() {
				newRun(t, seed, WholeRoutes, bad, &translator{}).live()
			}
		})
	}
}

package names

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSetsBehaveLikeMaps compares random histories with maps. Equal sets must be identical, however
// they were made.
func TestSetsBehaveLikeMaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := NewPool()
	seen := map[string]*Set{}
	for range 50 {
		var s *Set
		want := map[string]bool{}
		for range 100 {
			var list []string
			for range r.IntN(4) {
				list = append(list, fmt.Sprint(r.IntN(12)))
			}
			if r.IntN(2) == 0 {
				s = p.With(s, Strings(list))
				for _, n := range list {
					want[n] = true
				}
			} else {
				s = p.Without(s, Strings(list))
				for _, n := range list {
					delete(want, n)
				}
			}
			got := slices.Collect(s.All())
			require.True(t, slices.IsSorted(got))
			require.Len(t, got, len(want))
			require.Equal(t, len(want), s.Len())
			require.Equal(t, len(want) == 0, s == nil)
			for n := range want {
				require.True(t, s.Has(n))
			}
			key := fmt.Sprint(got)
			if known, ok := seen[key]; ok {
				require.Same(t, known, s)
			}
			seen[key] = s
		}
	}
}

// TestRepeatedSteps repeats steps from the same sets: more steps than are kept, and after sets
// were collected.
func TestRepeatedSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := NewPool()
	bases := []*Set{nil, p.Of("1"), p.Of("1", "2", "3"), p.Of("12", "3")}
	for i := range 5000 {
		base := bases[r.IntN(len(bases))]
		var list []string
		for range 1 + r.IntN(recentNames+1) {
			list = append(list, fmt.Sprint(r.IntN(14)))
		}
		want := map[string]bool{}
		for n := range base.All() {
			want[n] = true
		}
		minus := r.IntN(2) == 0
		for _, n := range list {
			want[n] = !minus
		}
		got := map[bool]func(*Set, List) *Set{false: p.With, true: p.Without}[minus](base, Strings(list))
		for n, in := range want {
			require.Equal(t, in, got.Has(n), "%v %v %v: %s", slices.Collect(base.All()), minus, list, n)
		}
		if i%500 == 0 {
			runtime.GC()
		}
	}
}

func TestUnionAndMinus(t *testing.T) {
	p := NewPool()
	a, b := p.Of("1", "2", "3"), p.Of("3", "4")
	require.Same(t, p.Of("4", "3", "2", "1"), p.Union(a, b))
	require.Same(t, p.Union(b, a), p.Union(a, b))
	require.Same(t, p.Of("1", "2"), p.Minus(a, b))
	require.Nil(t, p.Minus(a, a))
	require.Same(t, a, p.Union(a, nil))
	require.Same(t, a, p.Union(nil, a))
	require.Same(t, a, p.Minus(a, nil))
	require.Nil(t, p.Minus(nil, a))
	require.Same(t, p.Of("x"), p.Of("x", "x"), "duplicates count once")
}

func TestUnusedSetsAreSwept(t *testing.T) {
	p := NewPool()
	for i := range 20_000 {
		p.Of(fmt.Sprint(i))
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	runtime.GC()
	p.mu.Lock()
	p.sweep()
	p.mu.Unlock()
	require.Less(t, len(p.known), 100, "recent steps keep no sets")
}

// BenchmarkWithKnown takes a step that another stream took: just before ("recent"), and so long ago
// that other steps have replaced it ("known").
func BenchmarkWithKnown(b *testing.B) {
	for name, forget := range map[string]bool{"recent": false, "known": true} {
		b.Run(name, func(b *testing.B) { benchmarkWith(b, forget) })
	}
}

func benchmarkWith(b *testing.B, forget bool) {
	p := NewPool()
	var list []string
	for i := range 500 {
		list = append(list, fmt.Sprintf("outbound|80||service-%d.ns.svc.cluster.local", i))
	}
	base := p.Of(list...)
	next := p.With(base, Strings([]string{"one more"}))
	add := [][]byte{[]byte("one more")}
	b.ReportAllocs()
	for b.Loop() {
		if forget {
			p.recent.slot(base, false, Slices(add)).Store(nil)
		}
		if p.With(base, Slices(add)) != next {
			b.Fatal()
		}
	}
}

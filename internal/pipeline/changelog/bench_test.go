package changelog

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// pass takes a revision through all stages and proxies.
func pass(l *Log, rev model.Revision, objects []ChangedObject, proxies int) {
	build(l, rev, objects...)
	l.Published(rev, proxies, at(0.7))
	for range proxies {
		l.Sent(rev, at(1))
		l.Settled(rev-1, rev, distribution.ACKed, at(2))
	}
	l.drain()
}

// BenchmarkAccounting measures the cost of the change log for one proxy and one change.
func BenchmarkAccounting(b *testing.B) {
	const proxies = 10000
	l := New(0, slog.New(slog.DiscardHandler), NewMetrics())
	objects := []ChangedObject{object(model.KindVirtualService, "reviews")}
	b.ReportAllocs()
	rev := model.Revision(0)
	for n := 0; b.Loop(); n++ {
		if n%proxies == 0 {
			rev++
			build(l, rev, objects...)
			l.Published(rev, proxies, at(0.7))
			l.drain()
		}
		l.Sent(rev, at(1))
		l.Settled(rev-1, rev, distribution.ACKed, at(2))
	}
}

// heldBy returns the heap that the result of build uses.
func heldBy(build func() any) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
}

// TestMemoryIsBounded checks that the memory of a full log depends neither on the number of earlier changes
// nor on the number of proxies.
func TestMemoryIsBounded(t *testing.T) {
	var objects []ChangedObject
	for i := range 2 * maxObjects {
		objects = append(objects, object(model.KindService, fmt.Sprint("service-", i)))
	}
	full := func(changes, proxies int) uint64 {
		return heldBy(func() any {
			l := New(0, slog.New(slog.DiscardHandler), NewMetrics())
			for rev := range changes {
				pass(l, model.Revision(rev+1), objects, proxies)
			}
			return l
		})
	}
	once := full(DefaultChanges, 1)
	t.Logf("a log of %d changes of %d objects each holds %d KiB", DefaultChanges, len(objects), once>>10)
	require.Less(t, once, uint64(8<<20))
	more := full(3*DefaultChanges, 100)
	require.Less(t, more, once*5/4, "three times as many changes, a hundred times as many proxies")

	index := heldBy(func() any {
		l := New(0, slog.New(slog.DiscardHandler), NewMetrics())
		mesh := make([]ChangedObject, 100000)
		for i := range mesh {
			mesh[i] = object(model.KindEndpointSlice, fmt.Sprint("slice-", i))
		}
		pass(l, 1, mesh, 1)
		return l
	})
	t.Logf("the last changes of 100,000 objects hold %d KiB with their names", index>>10)
	require.Less(t, index, uint64(40<<20))
}

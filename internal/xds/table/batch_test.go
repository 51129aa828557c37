package table

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestConcurrentSelections: streams that make the same selection at the same time share a batch, and
// one copy of its bytes. Each gets its selection, also if there are more selections than a state
// remembers.
func TestConcurrentSelections(t *testing.T) {
	tab, last := New("t"), model.Revision(2*maxBatches)
	for rev := range last {
		tab.Commit(rev+1, []Update{put(resource.Endpoints, fmt.Sprint("e", rev+1), "1")})
	}
	s := tab.State()
	const streams = 8
	var got [streams][]*Batch
	var ended sync.WaitGroup
	for i := range got {
		ended.Go(func() {
			for after := range last {
				b := s.Select(Selection{Type: resource.Endpoints, After: after, Upto: last})
				b.Delta()
				got[i] = append(got[i], b)
			}
		})
	}
	ended.Wait()
	shared := 0
	for after := range last {
		same := true
		for i := range got {
			b := got[i][after]
			require.Len(t, b.Entries, int(last-after))
			require.Equal(t, after+1, b.Entries[0].Revision)
			require.Equal(t, got[0][after].Delta(), b.Delta())
			same = same && b == got[0][after]
		}
		if same {
			shared++
		}
	}
	require.Equal(t, maxBatches, shared)
}

// TestEmptySelectionsAreNotKept: empty selections take no place, and do not displace others.
func TestEmptySelectionsAreNotKept(t *testing.T) {
	pool, s := names.NewPool(), New("in").State()
	for i := range 2 * maxBatches {
		b := s.Select(Selection{Type: resource.Endpoints, Upto: 1, Names: pool.Of(strconv.Itoa(i))})
		require.Empty(t, b.Entries)
		require.Empty(t, b.Delta())
	}
	require.Nil(t, s.batches.head.Load())
}

package server

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestLongBatchGoesFirst: requests of proxies wait for a long batch in progress, and not for later
// ones.
func TestLongBatchGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		longBatchGoesFirst(t, longBatch-1, false)
		longBatchGoesFirst(t, longBatch, true)
	})
}

func longBatchGoesFirst(t *testing.T, n int, long bool) {
	snd := &sender{}
	s := &Server{senders: []*sender{{}, snd}}
	batch := make([]*stream, n)
	for i := range batch {
		batch[i] = &stream{}
	}
	yielded := false
	batch[n-1].mu.news.Store(true)
	batch[n-1].mu.then = func() {
		go func() { s.yield(); yielded = true }()
		synctest.Wait()
		require.Equal(t, !long, yielded, "%d streams", n)
	}
	snd.send(batch)
	synctest.Wait()
	require.True(t, yielded)
}

package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// TestStreamIsQueuedOnce checks that the number of streams bounds a sender's queue, also if ACKs read the news of streams
// that wait in it, and that a stream whose turn was is queued again.
func TestStreamIsQueuedOnce(t *testing.T) {
	snd := &sender{wake: make(chan struct{}, 1)}
	st := (&Server{}).newStream(ledger.Protocol(0), nil, nil)
	st.sender = snd
	for rev := range model.Revision(10) {
		st.publish(rev+1, time.Now())
		st.readInbox()
	}
	require.Len(t, snd.queue, 1)
	batch := snd.queue
	snd.queue = nil
	snd.send(batch)
	st.publish(11, time.Now())
	require.Len(t, snd.queue, 1)
}

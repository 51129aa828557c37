package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressIsThatOfTheWorstResource(t *testing.T) {
	refused, sent := []Held{{Name: "x"}}, time.Unix(1, 0)
	for name, c := range map[string]struct {
		state TypeState
		want  TypeProgress
	}{
		"not in use":                {TypeState{}, TypeNotInUse},
		"ACKed":                     {TypeState{Wildcard: true, Sent: 7, ACKed: 7}, TypeSynced},
		"not sent":                  {TypeState{Subscribed: 2}, TypeNotSent},
		"not sent, waiting":         {TypeState{Subscribed: 2, Waiting: "clusters"}, TypeWaiting},
		"in flight, more waits":     {TypeState{Sent: 7, InFlightSince: sent, Waiting: "clusters"}, TypeInFlight},
		"refused, and in flight":    {TypeState{Sent: 7, InFlightSince: sent, Held: refused}, TypeRefused},
		"refused, unsubscribed now": {TypeState{Held: refused}, TypeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.state.Progress(); got != c.want {
				t.Errorf("progress %d, want %d", got, c.want)
			}
		})
	}
}

// TestJudge checks that refused resources outweigh revisions that are not settled.
func TestJudge(t *testing.T) {
	held := []TypeState{{Type: "CDS", Held: []Held{{Name: "a"}, {Name: "b"}}}, {Type: "LDS", Held: []Held{{Name: "c"}}}}
	for want, p := range map[ProxyStatus]ProxyState{
		ProxySynced: {}, ProxyBehind: {Pending: 1}, ProxyRefuses: {Pending: 1, Types: held},
	} {
		require.Equal(t, want, p.Judge())
		require.Equal(t, want != ProxySynced, p.Behind())
		require.Contains(t, ProxyStatuses, want)
	}
	require.Equal(t, 3, (&ProxyState{Types: held}).Refused())
}

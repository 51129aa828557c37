package baseline

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"
)

// AnsweredPage reports when a server of this package had read the last answer to its broadcasts.
const AnsweredPage = "/debug/answered"

// Answered is the body of AnsweredPage.
type Answered struct {
	Last time.Time `json:"last,omitzero"` // zero: no answer yet
	Open int64     `json:"open"`          // answers missing to the newest broadcast, if it began after the end of the one before
}

// answered counts for Answered. It costs 0.1 us of the 20 us that the reader needs for an answer.
type answered struct{ last, open atomic.Int64 } // last: nanoseconds since 1970; 0: never

// ask notes a broadcast to n connections.
func (a *answered) ask(n int) { a.open.Store(int64(n)) }

func (a *answered) now() {
	a.last.Store(time.Now().UnixNano())
	a.open.Add(-1)
}

func (a *answered) serve(w http.ResponseWriter, _ *http.Request) {
	out := Answered{Open: a.open.Load()} // read before the time, which is written first
	if at := a.last.Load(); at != 0 {
		out.Last = time.Unix(0, at)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // fails only if the client has gone
}

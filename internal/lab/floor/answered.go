package floor

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"
)

// AnsweredPage tells when a server of this package had read the last answer to what it broadcast.
const AnsweredPage = "/debug/answered"

// Answered is the body of AnsweredPage.
type Answered struct {
	Last time.Time `json:"last,omitzero"` // zero: none has come yet
	Open int64     `json:"open"`          // who has not answered the newest broadcast, where it began after the one before was over
}

// answered is Answered in the making. It takes a reader 0.1 us of what it takes for an answer (some 20).
type answered struct{ last, open atomic.Int64 } // last: nanoseconds since 1970; 0: never

// ask notes that so many are being told something.
func (a *answered) ask(n int) { a.open.Store(int64(n)) }

func (a *answered) now() {
	a.last.Store(time.Now().UnixNano())
	a.open.Add(-1)
}

func (a *answered) serve(w http.ResponseWriter, _ *http.Request) {
	out := Answered{Open: a.open.Load()} // before the time, which is noted first
	if at := a.last.Load(); at != 0 {
		out.Last = time.Unix(0, at)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // who asked has gone
}

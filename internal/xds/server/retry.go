package server

import (
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// maxTries is how often a refusal that may pass is tried again: after 2 s, 4, 8, ..., two minutes in all.
const maxTries = 6

// mayPass tells refusals of listeners that may end without a change. Envoy 1.40 refuses a listener that names a plugin
// while the last module it was given for the plugin, by its agent, is one that it refuses; the agent then
// gives it another. Or the module is a file, which somebody may mend.
func mayPass(message string) bool { return strings.Contains(message, "Unable to create Wasm plugin") }

// retry is when a stream's listeners are tried again.
type retry struct {
	tries int
	next  time.Time
}

// tryAgain sends refused listeners again when it is time. The stream's lock is held.
func (st *stream) tryAgain(now time.Time) {
	r := st.again
	due := r != nil && !now.Before(r.next)
	if st.closed || st.ledger == nil || !st.ledger.Retry(resource.Listener, due, maxTries, mayPass) {
		st.again = nil
		return
	}
	switch {
	case r == nil:
		st.again = &retry{next: now.Add(watchEvery)}
	case due:
		r.tries++
		r.next = now.Add(watchEvery << r.tries)
		st.step()
	}
}

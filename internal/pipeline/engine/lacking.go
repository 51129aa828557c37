package engine

import (
	"slices"

	"github.com/moonsail/moonsail/internal/pipeline/derive"
)

// Lacking are the hosts of ServiceEntries for which no address is left, as of the last batch. Nobody may change the list.
func (e *Engine) Lacking() []derive.Lack {
	if list := e.lacking.Load(); list != nil {
		return *list
	}
	return nil
}

// noteLacking tells when a range of addresses is used up for the first time, and when it is no more.
func (e *Engine) noteLacking() {
	before, now := e.Lacking(), e.deriver.Lacking()
	if slices.Equal(before, now) {
		return
	}
	e.lacking.Store(&now)
	switch {
	case len(now) == 0:
		e.log.Info("all hosts of ServiceEntries have addresses again")
	case len(before) == 0:
		e.log.Warn("a range of addresses for ServiceEntries is used up", "object", now[0].Entry.String(), "problem", now[0].String(), "hosts", len(now))
	}
}

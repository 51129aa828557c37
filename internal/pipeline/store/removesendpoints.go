package store

import "github.com/moonsail/moonsail/internal/model"

// RemovesEndpoints tells whether a change takes endpoints away, or takes requests from them. nil
// stands for what is not there.
func RemovesEndpoints(old, now model.Object) bool {
	switch old := old.(type) {
	case *model.EndpointSlice:
		next, _ := now.(*model.EndpointSlice)
		return next == nil || loses(old, next)
	case *model.Workload:
		next, _ := now.(*model.Workload)
		return next == nil || next.Terminating && !old.Terminating || !next.Ready && old.Ready
	}
	return false
}

// loses tells whether some endpoint that was ready is not, or not there.
func loses(old, now *model.EndpointSlice) bool {
	ready := make(map[string]bool, len(now.Members))
	for i := range now.Members {
		if m := &now.Members[i]; m.Ready && len(m.Addresses) > 0 {
			ready[m.Addresses[0]] = true
		}
	}
	for i := range old.Members {
		if m := &old.Members[i]; m.Ready && len(m.Addresses) > 0 && !ready[m.Addresses[0]] {
			return true
		}
	}
	return false
}

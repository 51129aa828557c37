package ledger

import (
	"fmt"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// requireStatuses compares statuses with what the proxy has, at any moment. If quiet, no message is
// under way, and every status must be final.
func (x *run) requireStatuses(quiet bool) {
	e, l := x.envoy, x.ledger
	look := func(t resource.Type, has func(name string) (version string)) {
		for _, s := range l.states {
			for entry := range s.All(t) {
				if l.lookup(t, entry.Name) != entry {
					continue // the entry of the other table counts
				}
				switch status := l.Status(t, entry.Name); {
				case t == resource.Cluster && e.refuses(): // the answer comes late
				case status == Has && has(entry.Name) != entry.Version:
					x.fail(fmt.Sprintf("%s %s: its status is that it has %s, and it has %q", t, entry.Name, entry.Version, has(entry.Name)))
				case (status == Has) != l.HasSince(t, entry.Name, entry.Revision) && status != Refused && status != NotSubscribed:
					x.fail(fmt.Sprintf("%s %s: %s, and has it since its revision: %t", t, entry.Name, status, status != Has))
				case quiet && (status == Unsent || status == Unanswered):
					x.fail(fmt.Sprintf("%s %s: %s, but nothing is under way", t, entry.Name, status))
				case status == Refused != (l.Refusal(t, entry.Name) != nil):
					x.fail(fmt.Sprintf("%s %s: %s, and the refusal is %v", t, entry.Name, status, l.Refusal(t, entry.Name)))
				}
			}
		}
	}
	look(resource.Cluster, func(n string) string { return e.clusters[n].version })
	look(resource.Listener, func(n string) string { return e.listeners[n].version })
	if !quiet {
		return // other types are unsubscribed by requests that are under way
	}
	look(resource.Endpoints, func(n string) string { return e.endpoints[n].version })
	if x.strategy.VirtualHosts {
		look(resource.VirtualHost, func(n string) string {
			for _, rc := range e.routes {
				if h, ok := rc.hosts[n]; ok {
					return h.version
				}
			}
			return ""
		})
	}
	if m := l.Missing(100); len(m) > 0 {
		x.fail(fmt.Sprintf("Missing returns %v", m))
	}
}

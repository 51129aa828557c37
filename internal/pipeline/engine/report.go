package engine

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// This file computes what a batch reports to the change log: objects, times, bytes, removed endpoints.

func changedObjects(changes []store.Change) []changelog.ChangedObject {
	out := make([]changelog.ChangedObject, len(changes))
	for i, c := range changes {
		o := changelog.ChangedObject{Key: c.Key, Operation: changelog.Updated, Observed: c.Event.Observed, Committed: c.Event.Committed}
		switch {
		case c.Old == nil:
			o.Operation = changelog.Created
		case c.New == nil:
			o.Operation = changelog.Deleted
		default:
			o.Moved = !model.SameAudience(c.Old, c.New)
		}
		if c.New != nil {
			o.ResourceVersion = c.New.Metadata().ResourceVersion
		}
		out[i] = o
	}
	return out
}

// firstObserved returns when the oldest event of a batch was seen: the start of its clock.
func firstObserved(changes []store.Change) time.Time {
	first := changes[0].Event.Observed
	for _, c := range changes[1:] {
		if c.Event.Observed.Before(first) {
			first = c.Event.Observed
		}
	}
	return first
}

// changedBytes is the size of the updates that made a difference. Whole route configurations do not
// count: they are assembled from parts that do.
func changedBytes(s *table.State, updates []table.Update) int64 {
	var n int64
	for _, u := range updates {
		if u.Resource == nil || u.Type == resource.RouteConfig {
			continue
		}
		if e := s.Get(u.Type, u.Name); e != nil && e.Revision == s.Revision {
			n += int64(len(u.Resource.DeltaField()))
		}
	}
	return n
}

// removedEndpoints lists the addresses that requests could go to before some changes, and not after.
// An endpoint that moves from one slice to another is listed too: readers check what is listed now.
func removedEndpoints(rev model.Revision, changes []store.Change) []changelog.RemovedEndpoint {
	var out []changelog.RemovedEndpoint
	for i := range changes {
		c := &changes[i]
		var old, now map[string]bool
		e := changelog.RemovedEndpoint{Revision: rev, Observed: c.Event.Observed, Object: c.Key}
		switch o := c.Old.(type) {
		case *model.EndpointSlice:
			n, _ := c.New.(*model.EndpointSlice)
			old, now = readyMembers(o), readyMembers(n)
			e.Service = model.Key{Kind: model.KindService, Namespace: o.Namespace, Name: o.Service}
		case *model.Workload:
			if c.Key.Kind != model.KindWorkloadEntry {
				continue // a Pod is an endpoint through its EndpointSlice
			}
			n, _ := c.New.(*model.Workload)
			old, now = addressesOf(o), addressesOf(n)
			e.Labels = o.Labels
		case *model.ServiceEntry:
			n, _ := c.New.(*model.ServiceEntry)
			old, now = inlineAddresses(o), inlineAddresses(n)
			e.Hosts = o.Hosts
		}
		for address := range old {
			if !now[address] {
				e.Address = address
				out = append(out, e)
			}
		}
	}
	return out
}

// drainingEndpoints lists the endpoints of workloads that drain. hostsAt returns the hosts of
// a namespace that have an endpoint at an address.
func drainingEndpoints(rev model.Revision, changes []store.Change, hostsAt func(address, ns string) []model.Host) []changelog.RemovedEndpoint {
	var out []changelog.RemovedEndpoint
	for i := range changes {
		d, ok := changes[i].New.(*model.DrainNotice)
		if !ok {
			continue
		}
		for _, a := range d.Addresses {
			out = append(out, changelog.RemovedEndpoint{
				Revision: rev, Observed: changes[i].Event.Observed, Object: d.Key, Address: a, Hosts: hostsAt(a, d.Namespace),
			})
		}
	}
	return out
}

func readyMembers(s *model.EndpointSlice) map[string]bool {
	if s == nil {
		return nil
	}
	out := make(map[string]bool, len(s.Members))
	for i := range s.Members {
		if m := &s.Members[i]; m.Ready && len(m.Addresses) > 0 {
			out[m.Addresses[0]] = true
		}
	}
	return out
}

func addressesOf(w *model.Workload) map[string]bool {
	if w == nil || !w.Ready || w.Address() == "" {
		return nil
	}
	return map[string]bool{w.Address(): true}
}

func inlineAddresses(e *model.ServiceEntry) map[string]bool {
	if e == nil {
		return nil
	}
	out := make(map[string]bool, len(e.Template.Inline))
	for i := range e.Template.Inline {
		if in := &e.Template.Inline[i]; in.Health == model.Healthy {
			out[in.Address] = true
		}
	}
	return out
}

package engine

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// removedEndpoints are the addresses that calls could go to before some changes, and not
// after. One that goes from one slice to another is among them: whoever asks looks at what
// is there then.
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
				continue // Pods are endpoints by their slices
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

// departed are the endpoints of workloads that leave.
func (e *Engine) draining(rev model.Revision, changes []store.Change) []changelog.RemovedEndpoint {
	var out []changelog.RemovedEndpoint
	for i := range changes {
		d, ok := changes[i].New.(*model.DrainNotice)
		if !ok {
			continue
		}
		for _, a := range d.Addresses {
			out = append(out, changelog.RemovedEndpoint{
				Revision: rev, Observed: changes[i].Event.Observed, Object: d.Key, Address: a, Hosts: e.deriver.Index().HostsAt(a),
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
	if w == nil || w.Address() == "" {
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

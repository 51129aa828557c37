package status

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// The control plane that writes asks the others what their proxies refuse. Each finds the objects that the
// refusals are about, and sends the content hash of its form of them. Refusals of another form do not
// count.

// MethodReport is the unary gRPC method by which control planes report what their proxies refuse. Its
// messages are a question and a report in JSON.
const MethodReport = "/moonsail.v1.ControlPlane/Refusals"

// Bounds of questions and reports.
const (
	reportTimeout = 2 * time.Second
	maxReported   = 1000
)

// question asks for all refusals, and for the state of some objects.
type question struct {
	Doubtful []model.Key `json:"doubtful,omitempty"`
}

// report is what one control plane knows from its proxies.
type report struct {
	Refused []refusedObject `json:"refused,omitempty"`
	Stand   []objectState   `json:"stand,omitempty"` // state of the doubtful objects, in their order
}

// refusedObject is an object with what proxies refuse of it.
type refusedObject struct {
	Object  model.Key `json:"object"`
	Content string    `json:"content"` // see explain.Content
	What    string    `json:"what"`
	Message string    `json:"message"`
	Proxies int       `json:"proxies"`
	Others  int       `json:"others,omitempty"`
	Shared  int       `json:"shared,omitempty"`
	Doubt   bool      `json:"doubt,omitempty"`
	Mesh    bool      `json:"mesh,omitempty"`
	Changed bool      `json:"changed,omitempty"`
}

// objectState is the state of an object on one control plane.
type objectState struct {
	Content   string         `json:"content"`
	Known     bool           `json:"known"`     // the fields below are known
	AgeMillis int64          `json:"ageMs"`     // age of its last change
	Counts    explain.Counts `json:"counts"`    // of proxies
	Concerned int            `json:"concerned"` // concerned proxies
}

// Reporter reports what the proxies of one control plane refuse. Its fields are read-only.
type Reporter struct {
	Snapshot func() *store.Snapshot
	Refusals func() []*distribution.Refusal
	Explain  func(model.Key, explain.Ask) (*explain.Explanation, error)
	Causes   func(*store.Snapshot) *explain.Causes
}

// Report serves MethodReport. The port that serves it admits control planes only.
func (r *Reporter) Report(_ context.Context, request []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, server.Invalid("%s: %v", MethodReport, err)
	}
	return json.Marshal(r.report(&q))
}

func (r *Reporter) report(q *question) *report {
	out, snap := &report{}, r.Snapshot()
	for k, one := range r.refused(snap) {
		if len(out.Refused) == maxReported {
			break
		}
		out.Refused = append(out.Refused, refusedObject{
			Object: k, Content: contentOf(snap, k), What: one.what, Message: one.message, Proxies: one.proxies, Others: one.others,
			Shared: one.shared, Doubt: one.doubt, Mesh: one.mesh, Changed: one.changed,
		})
	}
	for _, k := range q.Doubtful {
		out.Stand = append(out.Stand, r.objectState(snap, k))
	}
	return out
}

// refused returns what proxies refuse, by the objects that it is made from. Resources of one name count
// once, with the proxies of all.
func (r *Reporter) refused(snap *store.Snapshot) map[model.Key]refusal {
	causes, all := r.Causes(snap), map[model.Key]map[string]refusal{}
	for _, r := range r.Refusals() {
		cause := causes.Of(r)
		if len(cause.Objects) > maxMeant && !cause.Each {
			continue
		}
		one := refusal{
			what: strings.TrimSpace(r.Type.String() + " " + r.Name), message: r.Message, proxies: r.Proxies,
			shared: len(cause.Objects) - 1, doubt: !cause.Sure, mesh: cause.Mesh, changed: cause.Changed,
		}
		if cause.Each {
			one.shared = 0
		}
		for _, k := range cause.Objects {
			if all[k] == nil {
				all[k] = map[string]refusal{}
			}
			all[k][one.what] = combined(all[k][one.what], one)
		}
	}
	out := map[model.Key]refusal{}
	for k, whats := range all {
		for _, one := range whats {
			out[k] = joined(out[k], one)
		}
	}
	return out
}

func (r *Reporter) objectState(snap *store.Snapshot, k model.Key) objectState {
	out := objectState{Content: contentOf(snap, k)}
	e, err := r.Explain(k, explain.Ask{})
	if err != nil || e.State == changelog.Building {
		return out
	}
	out.Known, out.Counts, out.Concerned = true, e.Counts, e.Counts.Concerned()
	out.AgeMillis = time.Since(e.Observed).Milliseconds()
	return out
}

func contentOf(snap *store.Snapshot, k model.Key) string {
	if o := snap.Get(k); o != nil {
		return explain.Content(o)
	}
	return ""
}

// Others asks the other control planes.
type Others struct {
	Peers *peers.Peers

	mu   sync.Mutex // guards last
	last map[string]*report
}

// ask returns each control plane's newest report. all is set if each has answered now.
func (o *Others) ask(ctx context.Context, q *question) (out []*report, all bool) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	answers := peers.Ask[report](ctx, o.Peers, MethodReport, q)
	o.mu.Lock()
	defer o.mu.Unlock()
	said := map[string]*report{}
	all = true
	for _, a := range answers {
		r := a.Reply
		if r == nil || len(r.Stand) != len(q.Doubtful) {
			all, r = false, o.last[a.Address]
		}
		if r != nil {
			said[a.Address] = r
			out = append(out, r)
		}
	}
	o.last = said
	return out, all
}

// add adds what proxies of another control plane refuse of the same form of objects.
func (r *report) add(all map[model.Key]refusal, snap *store.Snapshot) {
	for i := range r.Refused {
		o := &r.Refused[i]
		if o.Content == "" || o.Content != contentOf(snap, o.Object) {
			continue // the other control plane will have our form soon
		}
		one := refusal{
			what: o.What, message: o.Message, proxies: o.Proxies, others: o.Others,
			shared: o.Shared, doubt: o.Doubt, mesh: o.Mesh, changed: o.Changed,
		}
		all[o.Object] = combined(all[o.Object], one)
	}
}

// combined merges refusals of an object by proxies of two tables or control planes. The more certain one
// counts.
func combined(a, b refusal) refusal {
	if a.what != b.what || a.proxies == 0 {
		return joined(a, b)
	}
	a.message = min(a.message, b.message)
	a.proxies += b.proxies
	a.others = max(a.others, b.others)
	a.shared, a.doubt, a.mesh, a.changed = min(a.shared, b.shared), a.doubt && b.doubt, a.mesh && b.mesh, a.changed && b.changed
	return a
}

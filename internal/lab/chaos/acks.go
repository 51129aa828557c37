package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// ackEvery is how often control planes are asked about changes that are not ACKed yet.
const ackEvery = 150 * time.Millisecond

// pending is a change whose ACKs are awaited.
type pending struct {
	object  string
	number  int
	parts   []document
	before  time.Time // when the write before it began
	written time.Time
}

// document is one of the documents that an object consists of.
type document struct {
	key     model.Key
	content string // empty: it was deleted
}

// acker asks the control planes which changes all proxies have, and checks that their Envoys have them.
type acker struct {
	*processes
	history *history
	found   func(violation)
	ended   sync.WaitGroup
	cancel  context.CancelFunc

	asking sync.Mutex // held while control planes are asked

	mu      sync.Mutex // guards the fields below
	waiting map[string]pending
	took    []time.Duration // from the write until the last ACK was known
	checked int             // ACKed changes that were looked up in Envoys
	// replaced are the changes that were written again before their ACK.
	replaced int
}

func newAcker(m *processes, h *history, found func(violation)) *acker {
	return &acker{processes: m, history: h, found: found, waiting: map[string]pending{}}
}

// start begins to ask. The lists of control planes and sidecars must not change any more: they have no lock.
func (a *acker) start() {
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	a.ended.Go(func() {
		for clock.Sleep(ctx, ackEvery) == nil {
			a.asking.Lock()
			a.look(ctx)
			a.asking.Unlock()
		}
	})
}

// stop may be called without start.
func (a *acker) stop() {
	if a.cancel != nil {
		a.cancel()
	}
	a.ended.Wait()
}

// expect awaits the ACKs of a write, in place of those of earlier writes of the object. deleted is the object's last form
// if it was deleted.
func (a *acker) expect(object string, number int, yaml string, deleted bool) error {
	p := pending{object: object, number: number, before: a.history.before(object, number).written, written: a.history.newest(object).written}
	for _, text := range strings.Split(yaml, separator) {
		o, problems := config.Decoder{}.FromYAML([]byte(text))
		if o == nil {
			return fmt.Errorf("%s: %v", object, problems)
		}
		d := document{key: o.Metadata().Key}
		if !deleted {
			d.content = explain.Content(o)
		}
		p.parts = append(p.parts, d)
	}
	a.forget(object)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[object] = p
	return nil
}

// forget stops to await the ACK of an object's last write: another one follows it.
func (a *acker) forget(object string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, open := a.waiting[object]; open {
		a.replaced++
	}
	delete(a.waiting, object)
}

// open returns the changes without ACKs.
func (a *acker) open() []pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := slices.Collect(maps.Values(a.waiting))
	slices.SortFunc(list, func(x, y pending) int { return x.number - y.number })
	return list
}

// connections are the streams of each control plane that answers, as "proxy/stream".
type connections map[int][]string

// connected lists the streams of all control planes that answer. It returns nil if a proxy is connected to none.
func (a *acker) connected(ctx context.Context) connections {
	out, seen := connections{}, map[string]bool{}
	for _, p := range a.planes {
		b, err := a.page(ctx, "http://"+p.http+"/debug/proxies?local")
		var list debug.ProxyList
		if err != nil || json.Unmarshal(b, &list) != nil {
			continue
		}
		out[p.number] = []string{}
		for i := range list.Proxies {
			s := &list.Proxies[i]
			seen[s.Name] = true
			out[p.number] = append(out[p.number], fmt.Sprintf("%s/%d", s.Name, s.Stream))
		}
		slices.Sort(out[p.number])
	}
	for _, name := range a.proxies() {
		if !seen[name] {
			return nil
		}
	}
	return out
}

func (c connections) equal(d connections) bool {
	return c != nil && d != nil && maps.EqualFunc(c, d, slices.Equal[[]string])
}

// look asks once about all changes. A change is ACKed if each control plane that runs reports so, and every proxy was
// connected before and after the question. Those without proxies count, too: a proxy that reconnects to one that does not
// have the change yet, because it starts or was stopped, gets an older state again.
func (a *acker) look(ctx context.Context) {
	open := a.open()
	if len(open) == 0 {
		return
	}
	before := a.connected(ctx)
	if before == nil {
		return
	}
	var have, settled []pending
	for _, p := range open {
		switch a.everywhere(ctx, p, before) {
		case claimACKed:
			have = append(have, p)
		case claimSettled:
			settled = append(settled, p)
		case claimNone:
		}
	}
	if len(have)+len(settled) == 0 || !before.equal(a.connected(ctx)) {
		return
	}
	for _, p := range have {
		a.acked(p)
		if a.verify(ctx, p, before, "the control planes report that all proxies have it") {
			a.mu.Lock()
			a.checked++
			a.mu.Unlock()
		}
	}
	for _, p := range settled {
		a.verify(ctx, p, before, "the control planes have settled its revision for all proxies")
	}
}

// claim is what control planes claim about a change.
type claim int

// A greater claim includes the smaller ones, as all proxies must have a change that is settled.
const (
	claimNone    claim = iota
	claimSettled       // its revision is settled for all proxies, though some are reported not to have the change
	claimACKed
)

func (a *acker) acked(p pending) {
	now := time.Now()
	a.history.ack(p.object, p.number, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, now.Sub(p.written))
	if a.waiting[p.object].number == p.number {
		delete(a.waiting, p.object)
	}
}

// everywhere returns what all control planes claim about a change. One whose process has ended reads it when it starts.
func (a *acker) everywhere(ctx context.Context, p pending, streams connections) claim {
	all := claimACKed
	for _, plane := range a.planes {
		if _, answers := streams[plane.number]; !answers {
			if plane.ended() == nil {
				return claimNone
			}
			continue
		}
		for _, d := range p.parts {
			if all > claimNone {
				all = min(all, a.claimed(ctx, plane, d, &p))
			}
		}
	}
	return all
}

// claimed returns what a control plane claims about a document.
func (a *acker) claimed(ctx context.Context, plane *plane, p document, of *pending) claim {
	_, started := plane.running()
	path := "/debug/explain/" + strings.Join([]string{string(p.key.Kind), url.PathEscape(p.key.Namespace), url.PathEscape(p.key.Name)}, "/")
	b, err := a.page(ctx, "http://"+plane.http+path+"?local&max=100")
	if errors.Is(err, errNotFound) { // a control plane that has started after the creation may never have known the object
		if p.content == "" && started.After(of.before) && a.settled(ctx, plane) {
			return claimACKed
		}
		return claimNone
	}
	var e explain.Explanation
	if err != nil || json.Unmarshal(b, &e) != nil || e.Revision == 0 || e.State == changelog.Building || e.Counts.Refused > 0 {
		return claimNone
	}
	switch current := e.Exists && e.Content == p.content; {
	case p.content == "" && (e.Exists || !e.Observed.After(of.written)), p.content != "" && !current:
		return claimNone
	case e.Counts.Behind == 0:
		return claimACKed
	case e.LeftOut == 0 && a.haveSettled(ctx, plane, &e):
		return claimSettled
	}
	return claimNone
}

// haveSettled reports whether a control plane has settled a revision for all proxies that an explanation reports behind.
func (a *acker) haveSettled(ctx context.Context, plane *plane, e *explain.Explanation) bool {
	b, err := a.page(ctx, "http://"+plane.http+"/debug/proxies?local")
	var list debug.ProxyList
	if err != nil || json.Unmarshal(b, &list) != nil {
		return false
	}
	settled := map[string]model.Revision{}
	for i := range list.Proxies {
		settled[list.Proxies[i].ID] = list.Proxies[i].Settled
	}
	return !slices.ContainsFunc(e.Proxies, func(p distribution.ProxySyncStatus) bool {
		return p.Position == distribution.StateBehind && settled[p.ID] < e.Revision
	})
}

// unasked calls a function during which no control plane is asked.
func (a *acker) unasked(do func() error) error {
	a.asking.Lock()
	defer a.asking.Unlock()
	return do()
}

// arrive waits until the Envoys that an object concerns have its newest version.
func (a *acker) arrive(ctx context.Context, object string) error {
	now := a.history.newest(object)
	old := a.history.before(object, now.number)
	return await(ctx, quietTime, "the change in all Envoys, without a question to control planes", func(ctx context.Context) error {
		for _, s := range a.concerned(object) {
			text, err := s.dump(ctx, object)
			if err != nil {
				return err
			}
			if w := a.contradiction(text, object, now, old); w != "" {
				return fmt.Errorf("%s %s", s.workload, w)
			}
		}
		return nil
	})
}

// settled reports whether all proxies of a control plane have ACKed everything.
func (a *acker) settled(ctx context.Context, plane *plane) bool {
	b, err := a.page(ctx, "http://"+plane.http+"/debug/proxies?local")
	var list debug.ProxyList
	if err != nil || json.Unmarshal(b, &list) != nil {
		return false
	}
	return !slices.ContainsFunc(list.Proxies, func(s server.ProxyState) bool { return s.Pending > 0 })
}

// verify checks that the Envoys that a change concerns have it. It reports nothing if the object was written again, or a
// proxy has reconnected, meanwhile. It returns whether it has looked at an Envoy.
func (a *acker) verify(ctx context.Context, p pending, before connections, claim string) (looked bool) {
	state := a.history.newest(p.object)
	if state.number != p.number {
		return false
	}
	old := a.history.before(p.object, p.number)
	wrong := ""
	for _, s := range a.concerned(p.object) {
		if a.history.wasDisturbed(s.workload, p.written) {
			continue // another Envoy may have ACKed it than the one that runs now
		}
		text, err := s.dump(ctx, p.object)
		if err != nil {
			return looked
		}
		looked = true
		if w := a.contradiction(text, p.object, state, old); w != "" {
			wrong = s.workload + " " + w
			break
		}
	}
	if wrong == "" || a.history.newest(p.object).number != p.number || !before.equal(a.connected(ctx)) {
		return looked
	}
	a.found(violation{At: time.Now(), Kind: "ledger", Subject: p.object, Text: fmt.Sprintf("write %d (%s): %s, but %s", p.number, state.state, claim, wrong)})
	return looked
}

// concerned returns the sidecars whose configuration has marks of an object.
func (a *acker) concerned(object string) (out []*sidecar) {
	kind, of, _ := strings.Cut(object, "/")
	for _, s := range a.sidecars {
		client := slices.Contains(a.clients(), s.workload)
		switch kind {
		case "route", "endpoints":
			if client {
				out = append(out, s)
			}
		case "auth":
			if serviceOf(s.workload) == of {
				out = append(out, s)
			}
		}
	}
	return out
}

// dumpParts are the parts of a config dump with the marks of an object.
var dumpParts = map[string]url.Values{
	"route":     {"resource": {"dynamic_route_configs"}},
	"auth":      {"resource": {"dynamic_listeners"}},
	"endpoints": {"resource": {"dynamic_endpoint_configs"}, "include_eds": {""}},
}

func (s *sidecar) dump(ctx context.Context, object string) (string, error) {
	kind, _, _ := strings.Cut(object, "/")
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	text, err := s.admin.ConfigDump(ctx, dumpParts[kind])
	return string(text), err
}

// contradiction returns how a dump contradicts the ACKs of a version, or "".
func (a *acker) contradiction(dump, object string, now, old version) string {
	kind, of, _ := strings.Cut(object, "/")
	mark := func(v version) string {
		switch {
		case v.number == 0 || v.state == none || v.state == invalid:
			return ""
		case kind == "route":
			return fmt.Sprintf("%q", fmt.Sprintf("n%d", v.number))
		case kind == "auth":
			return authMark(v.number)
		}
		return ""
	}
	if m := mark(now); m != "" && !strings.Contains(dump, m) {
		return "has no " + m
	}
	if m := mark(old); kind == "route" && m != "" && strings.Contains(dump, m) {
		return "still has " + m
	}
	if kind != "endpoints" {
		return ""
	}
	var want []string
	for _, v := range strings.Split(now.state, ",") {
		want = append(want, a.ip(instanceName(of, v)))
	}
	slices.Sort(want)
	cluster := fmt.Sprintf("outbound|%d||%s", httpPort, hostOf(of))
	if got := endpointsIn(dump, cluster); !slices.Equal(got, want) {
		return fmt.Sprintf("has endpoints %v of %s, not %v", got, cluster, want)
	}
	return ""
}

// endpointsIn returns the addresses of a cluster in a dump, in order.
func endpointsIn(dump, cluster string) (out []string) {
	var d struct {
		Configs []struct {
			Config struct {
				Cluster   string `json:"cluster_name"`
				Endpoints []struct {
					Members []struct {
						Endpoint struct {
							Address struct {
								Socket struct {
									Address string `json:"address"`
								} `json:"socket_address"`
							} `json:"address"`
						} `json:"endpoint"`
					} `json:"lb_endpoints"`
				} `json:"endpoints"`
			} `json:"endpoint_config"`
		} `json:"configs"`
	}
	if json.Unmarshal([]byte(dump), &d) != nil {
		return nil
	}
	for _, c := range d.Configs {
		if c.Config.Cluster != cluster {
			continue
		}
		for _, locality := range c.Config.Endpoints {
			for _, m := range locality.Members {
				out = append(out, m.Endpoint.Address.Socket.Address)
			}
		}
	}
	slices.Sort(out)
	return out
}

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/child"
)

// Usage is what a control plane has in use.
type Usage struct {
	Plane      int     `json:"plane"`
	Goroutines int     `json:"goroutines"`
	Files      int     `json:"files"`   // file descriptors; connections are among them
	Members    int     `json:"members"` // of all proxy groups: a sidecar's stream is in two
	RSS        float64 `json:"rss_mb"`
}

// usage returns that of all control planes that answer.
func (m *processes) usage(ctx context.Context) (out []Usage) {
	for _, p := range m.planes {
		u := Usage{Plane: p.number}
		if text, err := m.page(ctx, "http://"+p.http+"/debug/pprof/goroutine?debug=1"); err == nil {
			_, _ = fmt.Sscanf(string(text), "goroutine profile: total %d", &u.Goroutines) // 0 if it has another form
		}
		u.Members = m.members(ctx, p)
		if files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid())); err == nil {
			u.Files = len(files)
		}
		if memory, err := child.MemoryOf(p.pid()); err == nil {
			u.RSS = float64(memory.RSS) / (1 << 20)
		}
		out = append(out, u)
	}
	return out
}

// members returns the number of members of all proxy groups of a control plane.
func (m *processes) members(ctx context.Context, p *plane) (n int) {
	var groups struct {
		Scopes []struct {
			Proxies int `json:"proxies"`
		} `json:"scopes"`
	}
	text, err := m.page(ctx, "http://"+p.http+"/debug/scopes")
	if err != nil || json.Unmarshal(text, &groups) != nil {
		return 0
	}
	for _, g := range groups.Scopes {
		n += g.Proxies
	}
	return n
}

// Limits of what control planes may use more after reconnections of all proxies. The memory's covers what Go's collector
// has not returned yet.
const (
	reconnections  = 4
	moreGoroutines = 8
	moreFiles      = 8
	moreMemory     = 64 // MB
)

// compareUsage makes all proxies reconnect several times. The goroutines and files of all control planes together must not
// grow, wherever the proxies are connected now.
func (r *run) compareUsage(ctx context.Context, first []Usage, report *Report) {
	r.options.progress("reconnecting all proxies")
	report.UsageFirst = first
	report.UsageBefore = r.steadyUsage(ctx)
	for range reconnections {
		for _, s := range r.mesh.sidecars {
			s.relay.reset()
		}
		err := await(ctx, quietTime, "reconnections", func(ctx context.Context) error {
			if r.acks.connected(ctx) == nil {
				return fmt.Errorf("a proxy is not connected")
			}
			return r.awaitSettled(ctx)
		})
		if err != nil && ctx.Err() == nil {
			r.found(violation{At: time.Now(), Kind: "stale", Subject: "reconnection", Text: err.Error()})
		}
	}
	was := total(first).Members
	// Control planes may notice the last reset only after they were asked, and Envoys wait before they reconnect.
	_ = await(ctx, quietTime, "members", func(ctx context.Context) error { // a violation follows below
		if n := total(r.mesh.usage(ctx)).Members; n != was {
			return fmt.Errorf("%d members", n)
		}
		return nil
	})
	report.UsageAfter = r.steadyUsage(ctx)
	before, after := total(report.UsageBefore), total(report.UsageAfter)
	if after.Members != was {
		r.found(violation{At: time.Now(), Kind: "leak", Subject: "control planes", Text: fmt.Sprintf("proxy groups have %d members, and %d before the plan", after.Members, was)})
	}
	for _, u := range []struct {
		what    string
		was, is float64
		mayBe   float64
	}{
		{"goroutines", float64(before.Goroutines), float64(after.Goroutines), moreGoroutines},
		{"file descriptors", float64(before.Files), float64(after.Files), moreFiles},
		{"MB of memory", before.RSS, after.RSS, moreMemory},
	} {
		if u.is > u.was+u.mayBe {
			r.found(violation{At: time.Now(), Kind: "leak", Subject: "control planes",
				Text: fmt.Sprintf("%.0f %s after %d reconnections of all proxies, %.0f before", u.is, u.what, reconnections, u.was)})
		}
	}
}

func (r *run) awaitSettled(ctx context.Context) error {
	for _, p := range r.mesh.planes {
		if !r.acks.settled(ctx, p) {
			return fmt.Errorf("%s: proxies have not ACKed everything", p.name)
		}
	}
	return nil
}

// steadyUsage returns the usage when it no longer falls: ended streams need a moment.
func (r *run) steadyUsage(ctx context.Context) []Usage {
	last := r.mesh.usage(ctx)
	_ = await(ctx, 10*time.Second, "steady usage", func(ctx context.Context) error { // the last one counts
		for range 10 { // half a second
			now := r.mesh.usage(ctx)
			if a, b := total(now), total(last); a.Goroutines < b.Goroutines || a.Files < b.Files || a.Members < b.Members {
				last = now
				return fmt.Errorf("it falls")
			}
			if err := clock.Sleep(ctx, pollEvery); err != nil {
				return err
			}
		}
		return nil
	})
	return last
}

func total(list []Usage) (sum Usage) {
	for _, u := range list {
		sum.Goroutines += u.Goroutines
		sum.Files += u.Files
		sum.Members += u.Members
		sum.RSS += u.RSS
	}
	return sum
}

// compareFresh reads what all Envoys have, starts control planes and sidecars anew, and compares: nothing that was left
// over by the history of the run may differ.
func (r *run) compareFresh(ctx context.Context, report *Report) error {
	old, err := r.dumps(ctx)
	if err != nil {
		return err
	}
	r.options.progress("starting everything anew, to compare")
	for _, s := range r.mesh.sidecars {
		s.kill()
	}
	for _, p := range r.mesh.planes {
		p.kill()
	}
	var all sync.WaitGroup
	errs := make([]error, len(r.mesh.planes))
	for i, p := range r.mesh.planes {
		all.Go(func() { errs[i] = r.mesh.startPlane(ctx, p) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, s := range r.mesh.sidecars {
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range r.mesh.sidecars {
		if err := r.mesh.awaitSidecar(ctx, s); err != nil {
			return err
		}
	}
	var differences []string
	err = await(ctx, quietTime, "the same configuration", func(ctx context.Context) error {
		if err := r.awaitSettled(ctx); err != nil {
			return err
		}
		fresh, err := r.dumps(ctx)
		if err != nil {
			return err
		}
		if differences, report.Compared = compareDumps(old, fresh); len(differences) > 0 {
			return fmt.Errorf("%d differences", len(differences))
		}
		return nil
	})
	for _, d := range differences {
		r.found(violation{At: time.Now(), Kind: "final state", Subject: "Envoy", Text: d})
	}
	if err != nil && len(differences) == 0 {
		return err
	}
	return nil
}

// resources are what an Envoy has, by section and name.
type resources map[string]any

// dumps returns the resources of all Envoys, by workload.
func (r *run) dumps(ctx context.Context) (map[string]resources, error) {
	out := map[string]resources{}
	for _, s := range r.mesh.sidecars {
		text, err := s.admin.ConfigDump(ctx, url.Values{"include_eds": {""}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if out[s.workload], err = parseDump(text); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return out, nil
}

// sections are the parts of a dump that control planes send, with the path to the resource's name.
var sections = map[string][]string{
	"dynamic_active_clusters":      {"cluster", "name"},
	"dynamic_warming_clusters":     {"cluster", "name"},
	"dynamic_listeners":            {"name"},
	"dynamic_route_configs":        {"route_config", "name"},
	"dynamic_endpoint_configs":     {"endpoint_config", "cluster_name"},
	"dynamic_scoped_route_configs": {"name"},
	"ecds_filters":                 {"ecds_filter", "name"},
}

func parseDump(text []byte) (resources, error) {
	var dump struct {
		Configs []map[string]json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(text, &dump); err != nil {
		return nil, err
	}
	out := resources{}
	for _, c := range dump.Configs {
		for section, path := range sections {
			var list []any
			if c[section] == nil {
				continue
			}
			if err := json.Unmarshal(c[section], &list); err != nil {
				return nil, err
			}
			for _, x := range list {
				out[section+" "+nameAt(x, path)] = canonical(x)
			}
		}
	}
	return out, nil
}

func nameAt(x any, path []string) string {
	for _, key := range path {
		m, _ := x.(map[string]any)
		x = m[key]
	}
	name, _ := x.(string)
	return name
}

// notCompared are fields that depend on when a resource was received, or that Envoy reports in any order.
var notCompared = []string{"last_updated", "version_info", "draining_state"}

// canonical removes those fields, and orders virtual hosts and endpoints.
func canonical(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for _, f := range notCompared {
			delete(x, f)
		}
		for key, v := range x {
			v = canonical(v)
			if list, ok := v.([]any); ok && (key == "virtual_hosts" || key == "lb_endpoints" || key == "endpoints") {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(text(a), text(b)) })
			}
			x[key] = v
		}
	case []any:
		for i := range x {
			x[i] = canonical(x[i])
		}
	}
	return x
}

func text(x any) string {
	b, err := json.Marshal(x) // keys are in order
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// mostDifferences bounds those that are listed of one Envoy.
const mostDifferences = 5

// compareDumps returns how resources differ, and the number of resources.
func compareDumps(old, fresh map[string]resources) (out []string, n int) {
	for _, workload := range slices.Sorted(maps.Keys(old)) {
		was, is := old[workload], fresh[workload]
		all := maps.Clone(was)
		maps.Copy(all, is)
		listed := 0
		for _, name := range slices.Sorted(maps.Keys(all)) {
			n++
			a, had := was[name]
			b, has := is[name]
			var what string
			switch {
			case !has:
				what = "has " + name + ", a new one does not"
			case !had:
				what = "lacks " + name + ", a new one has it"
			case text(a) != text(b):
				what = "has another " + name + ": " + firstDifference(a, b)
			default:
				continue
			}
			if listed++; listed <= mostDifferences {
				out = append(out, workload+" "+what)
			}
		}
	}
	return out, n
}

// firstDifference describes where two values differ first.
func firstDifference(a, b any) string {
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if isMap && both {
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if text(x[k]) != text(y[k]) {
				return k + "." + firstDifference(x[k], y[k])
			}
		}
	}
	l, isList := a.([]any)
	m, both := b.([]any)
	if isList && both && len(l) == len(m) {
		for i := range l {
			if text(l[i]) != text(m[i]) {
				return strconv.Itoa(i) + "." + firstDifference(l[i], m[i])
			}
		}
	}
	return fmt.Sprintf(": %.300s, a new one has %.300s", text(a), text(b))
}

// panicked finds lines of logs about panics, which control planes and agents survive.
var panicked = regexp.MustCompile(`"panic|panic (in|while)|internal error: `)

// readLogs records the panics in the logs of all parts.
func (r *run) readLogs() error {
	files, err := filepath.Glob(filepath.Join(r.options.logs(r.mesh.dir), "*.log"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if panicked.MatchString(line) {
				r.found(violation{At: time.Now(), Kind: "crash", Subject: filepath.Base(file), Text: strings.TrimSpace(line)})
			}
		}
	}
	return nil
}

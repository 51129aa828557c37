package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/caller"
	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// DefaultMaxCalls is the default of Input.MaxCalls.
const DefaultMaxCalls = 20_000

// Input is a mesh with two configurations.
type Input struct {
	// Mesh is the mesh's configuration without the MeshConfig among the objects; nil: the default.
	Mesh          *model.Mesh
	Before, After Side
	// Calls are tried. Without any, Compute tries calls to all hosts whose resources or servers differ.
	Calls []Call
	// MaxCalls bounds how many calls Compute follows; 0: DefaultMaxCalls. One that stands for several callers counts once.
	// Report.Untried counts the others.
	MaxCalls int
	// CallsHost reports whether a proxy makes calls that reach a host. Without Calls, Compute tries only calls of workloads for which
	// that is true of the host that is called, or of one that the proxy sends it to; nil: all do. The host of a cluster without a
	// service is the cluster's name. Calls that the proxy answers itself reach the host "".
	CallsHost func(*model.Proxy, model.Host) bool
}

// Side is one configuration, and the proxies that have it.
type Side struct {
	Objects []model.Object
	// Templates are workloads that Deployments and other owners of Pods make; see Populate.
	Templates []*model.Workload
	Proxies   []*model.Proxy

	made  []model.Object // by Populate
	given []model.Object // Objects before Populate
	// rolled are the templates whose Pods are among Objects: true if they change Pods. By Populate.
	rolled map[model.Key]bool
	plain  []*model.Workload // without a proxy, by Populate
}

// Report is what the change does.
type Report struct {
	// Source is the configuration before the change, if the user did not name it.
	Source  string         `json:"source,omitempty"`
	Objects []ObjectChange `json:"objects"` // in key order
	// Proxies are those that both sides have and that would be sent something, in the order of their names.
	Proxies []ProxyChange `json:"proxies"`
	Of      int           `json:"of"` // all proxies that both sides have
	// New and Gone are the proxies that only one side has. Calls of workloads that the other side does not have are not tried.
	New   []string `json:"new,omitempty"`
	Gone  []string `json:"gone,omitempty"`
	Bytes int      `json:"bytes"` // to all proxies

	Tried int `json:"tried"` // calls that both sides decide
	// Untried counts the calls that exceed MaxCalls, and the routes that no call could be made up for.
	Untried int `json:"untried,omitempty"`
	// Undecided are calls that the simulator cannot decide on some side.
	Undecided []outcome.Undecided `json:"undecided,omitempty"`
	// Differ counts the calls that are decided differently. Differences has them, calls with equal changes together, the
	// refused and the newly allowed ones first.
	Differ int `json:"differ"`
	// Broken counts the calls that fail only after the change, Repaired those that fail only before: no endpoint can be reached, or a
	// proxy answers with an error.
	Broken      int          `json:"broken"`
	Repaired    int          `json:"repaired"`
	Differences []Difference `json:"differences"`
	// Problems are errors and warnings that the configuration before the change did not have.
	Problems problem.List `json:"problems,omitempty"`
	// Notes state what the preview does not cover.
	Notes []string `json:"notes,omitempty"`
}

// ObjectChange is an object that differs.
type ObjectChange struct {
	Object    model.Key `json:"object"`
	Operation string    `json:"operation"` // created, changed or deleted
	Origin    string    `json:"origin,omitempty"`
}

// Same reports whether the change has no effect on proxies.
func (r *Report) Same() bool { return len(r.Proxies) == 0 && r.Alike() }

// Alike reports whether all calls were tried, and both sides decide them alike.
func (r *Report) Alike() bool { return r.Differ == 0 && r.Untried == 0 && len(r.Undecided) == 0 }

// Compute compares the two sides. An error is a configuration that the simulator cannot read, or the end of ctx.
func Compute(ctx context.Context, in Input) (*Report, error) {
	mesh := in.Mesh
	if mesh == nil {
		mesh = model.DefaultMesh()
	}
	out := &Report{Objects: changedObjects(in.Before.written(), in.After.written()), Proxies: []ProxyChange{}, Differences: []Difference{}}
	for i, o := range out.Objects {
		if o.Operation == "created" && in.After.rolled[o.Object] {
			out.Objects[i].Operation = "changed" // its Pods were there
		}
	}
	before, err := open(mesh, in.Before)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sideBefore, err)
	}
	after, err := open(mesh, in.After)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sideAfter, err)
	}
	p := &comparison{before: before, after: after, report: out, callsHost: in.CallsHost, most: cmp.Or(in.MaxCalls, DefaultMaxCalls), unmade: map[string]string{}}
	if err := p.resources(ctx); err != nil {
		return nil, err
	}
	p.population()
	p.callers, p.plain, p.services = append(p.clients(), p.switched()...), p.plainCallers(), map[model.Host]bool{}
	for _, s := range slices.Concat(before.services, after.services) {
		p.services[s.Hostname] = true
	}
	if err := p.checkGiven(in.Calls); err != nil {
		return nil, err
	}
	calls, whole := in.Calls, len(in.Calls) == 0
	if whole {
		calls, whole = distinct(p.ownCalls()), in.CallsHost == nil
	}
	if err := p.try(ctx, calls, whole); err != nil {
		return nil, err
	}
	maps.Copy(after.assumed, before.assumed)
	if issuers := slices.Sorted(maps.Keys(after.assumed)); len(issuers) > 0 {
		out.Notes = append(out.Notes, "tokens of "+strings.Join(issuers, ", ")+" count as signed, since keys of a jwksUri are not fetched: write keys into jwks to check signatures")
	}
	if whole && len(calls) == 0 && len(out.Proxies) > 0 {
		out.Notes = append(out.Notes, "no call was tried, although proxies would be sent something: give calls that the change is about with --calls")
	}
	for _, f := range slices.Concat(before.compiled.Failures(), after.compiled.Failures()) {
		note := fmt.Sprintf("%s %s: cannot be translated: %s", f.Type, f.Name, f.Error)
		if !slices.Contains(out.Notes, note) {
			out.Notes = append(out.Notes, note)
		}
	}
	return out, nil
}

// comparison is the state of one Compute.
type comparison struct {
	before, after *opened
	report        *Report
	diffs         map[*model.Proxy]*resourceDiff // of the proxies that differ, as they are after the change
	callers       []*client
	services      map[model.Host]bool                 // of both sides
	plain         []string                            // workloads without a sidecar
	unmade        map[string]string                   // hosts of routes that no request is made up for, by route
	callsHost     func(*model.Proxy, model.Host) bool // nil: all do
	most          int                                 // calls to follow
}

// population lists the proxies that only one side has, and states which calls are not tried.
func (c *comparison) population() {
	for _, p := range c.after.proxies {
		if c.before.byName[p.String()] == nil {
			c.report.New = append(c.report.New, p.String())
		}
	}
	for _, p := range c.before.proxies {
		if c.after.byName[p.String()] == nil {
			c.report.Gone = append(c.report.Gone, p.String())
		}
	}
	slices.Sort(c.report.New)
	slices.Sort(c.report.Gone)
	if slices.ContainsFunc(c.report.Objects, func(o ObjectChange) bool { return o.Object.Kind == model.KindRequestAuthentication }) {
		c.report.Notes = append(c.report.Notes, "calls with tokens are not tried: give some with --calls")
	}
}

// opened is one side, translated as far as it was asked for.
type opened struct {
	compiled *engine.Compiled
	mesh     *model.Mesh // with its MeshConfig
	proxies  []*model.Proxy
	byName   map[string]*model.Proxy
	byIP     map[string]*model.Proxy
	worlds   map[tableKey]*world
	contents map[*table.Table]*content
	byProxy  map[*model.Proxy]*world
	names    *caller.Resolver
	services []*model.Service
	hostsAt  map[string][]model.Host // by an endpoint's address
	plain    map[string]*model.Proxy // workloads without a proxy, by name

	assumed map[string]bool // issuers of tokens that count as signed

	assignments map[string]*endpointv3.ClusterLoadAssignment // by cluster; nil: not read yet
}

func open(base *model.Mesh, s Side) (*opened, error) {
	objects := slices.Concat(s.Objects, s.made)
	o := &opened{
		compiled: engine.CompileAll(base, objects), mesh: base, proxies: s.Proxies,
		byName: map[string]*model.Proxy{}, byIP: map[string]*model.Proxy{}, worlds: map[tableKey]*world{}, byProxy: map[*model.Proxy]*world{}, contents: map[*table.Table]*content{}, plain: plainProxies(s.plain), assumed: map[string]bool{},
	}
	for _, p := range s.Proxies {
		if o.byName[p.String()] != nil {
			return nil, errors.New(p.String() + ": two proxies have this name")
		}
		o.byName[p.String()] = p
		for _, ip := range p.IPs {
			o.byIP[ip] = p
		}
	}
	for _, object := range s.Objects {
		if c, ok := object.(*model.MeshConfig); ok && c.Namespace == base.RootNamespace {
			o.mesh = c.Over(base)
		}
	}
	o.names = caller.NewResolver(base, o.compiled.Snapshot())
	o.services = servicesOf(objects)
	o.hostsAt = hostsByAddress(objects, o.services)
	return o, nil
}

// written returns the objects and templates that a user writes.
func (s *Side) written() []model.Object {
	objects := s.given
	if objects == nil {
		objects = s.Objects
	}
	out := slices.Clone(objects)
	for _, t := range s.Templates {
		if changes, rolled := s.rolled[t.Key]; changes || !rolled {
			out = append(out, t)
		}
	}
	return out
}

// changedObjects compares objects by content. Objects of files have no other version.
func changedObjects(before, after []model.Object) []ObjectChange {
	out := []ObjectChange{}
	old := map[model.Key]model.Object{}
	for _, o := range before {
		old[o.Metadata().Key] = o
	}
	for _, o := range after {
		m := o.Metadata()
		was, existed := old[m.Key]
		delete(old, m.Key)
		switch {
		case !existed:
			out = append(out, ObjectChange{m.Key, "created", m.Origin})
		case !sameContent(was, o):
			out = append(out, ObjectChange{m.Key, "changed", m.Origin})
		}
	}
	for k, o := range old {
		out = append(out, ObjectChange{k, "deleted", o.Metadata().Origin})
	}
	slices.SortFunc(out, func(a, b ObjectChange) int { return a.Object.Compare(b.Object) })
	return out
}

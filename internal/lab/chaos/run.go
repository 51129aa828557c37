package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Bounds that a run checks.
const (
	// quietTime is how long after the last fault and the last change all proxies may need to ACK everything.
	quietTime = 30 * time.Second
	// calmTime is how long requests go on when everything is ACKed.
	calmTime = 2 * time.Second
)

// run is a run in progress.
type run struct {
	options *Options
	mesh    *processes
	place   place
	history *history
	apps    []*app
	acks    *acker
	traffic *traffic
	began   time.Time // of the plan
	faults  sync.WaitGroup
	noise   map[string]int // objects of each burst; only Run's goroutine uses it

	mu         sync.Mutex        // guards the fields below
	objects    map[string]string // YAML of the objects as they were last written
	valid      map[string]int    // numbers of the last valid writes of objects that exist
	events     []event
	violations []violation
	more       int   // violations that are not listed
	failed     error // of a fault or a write that could not be done
	refused    int   // writes that the API server did not take
}

// mostViolations bounds the violations that are listed.
const mostViolations = 200

// Run runs a mesh, and returns the report also if there are violations.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	shape := ShapeOf(o.Proxies, o.APIServer != nil)
	if o.Plan == nil {
		o.Plan = NewPlan(o.Seed, shape, o.Time)
	}
	dir, err := meshfiles.TempDir("moonsail-chaos-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system removes it in the end
	r := &run{options: &o, history: newHistory(), objects: map[string]string{}, valid: map[string]int{}, noise: map[string]int{}}
	r.history.unordered = o.APIServer != nil
	report := &Report{Schema: 1, Experiment: "chaos", Begun: time.Now().Format(time.RFC3339), Seed: o.Seed, Version: o.Version, Asked: o.Proxies,
		Shape: shape, Time: o.Time.Seconds(), Machine: experiment.ThisMachine(ctx, o.Envoy)}
	started := time.Now()
	err = r.all(ctx, dir, shape, report)
	r.fill(report)
	report.Took = time.Since(started).Seconds()
	report.Machine.LoadAfter = experiment.LoadAverage()
	return report, err
}

// all starts the mesh, executes the plan, and checks what remains.
func (r *run) all(ctx context.Context, dir string, shape Shape, report *Report) error {
	subnet, err := freeSubnet(shape)
	if err != nil {
		return err
	}
	r.mesh = &processes{layout: layout{shape, subnet}, dir: dir, options: r.options, targets: map[string]*sync.Mutex{}, crashed: r.crashed, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
	defer r.end()
	if err := r.start(ctx); err != nil {
		return err
	}
	before := r.mesh.usage(ctx)
	if err := r.execute(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx, report); err != nil {
		return err
	}
	r.compareUsage(ctx, before, report)
	return errors.Join(r.compareFresh(ctx, report), r.readLogs())
}

// freeSubnet returns loopback addresses at which the ports of a mesh are free.
func freeSubnet(s Shape) (string, error) {
	pid := os.Getpid()
	for i := range 50 {
		l := layout{s, fmt.Sprintf("127.%d.%d.", 150+(pid+i)%50, pid/50%250)}
		if l.free() {
			return l.subnet, nil
		}
	}
	return "", errors.New("loopback addresses 127.150.0.0 to 127.199.255.255: in use: end other runs")
}

func (l layout) free() bool {
	for _, a := range []string{at(l.ip(l.proxies()[0]), adminPort), at(l.externalIP("a"), appHTTP), at(l.planeIP(1), planePort)} {
		c, err := net.Listen("tcp", a) //nolint:noctx // it takes no time
		if err != nil {
			return false
		}
		_ = c.Close() // it has no connections
	}
	return true
}

// start starts all parts, and waits until every sidecar takes traffic.
func (r *run) start(ctx context.Context) error {
	m := r.mesh
	for _, dir := range []string{r.options.logs(m.dir), m.path("config"), m.path("pods"), m.path("sidecars")} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // it holds no secrets
			return err
		}
	}
	kubeconfig := ""
	r.place = directory(m.path("config"))
	if r.options.APIServer != nil {
		r.options.progress("starting the API server")
		var err error
		if kubeconfig, err = m.startServer(ctx); err != nil {
			return err
		}
		r.place = m.cluster
	}
	if err := r.writeFirst(ctx); err != nil {
		return err
	}
	var err error
	if r.apps, err = m.startApps(); err != nil {
		return err
	}
	if err := errors.Join(m.writeTokens(), r.firstRoot(ctx)); err != nil {
		return err
	}
	for n := range planes {
		r.options.progress("starting control plane %d", n+1)
		if err := m.addPlane(n+1, m.path("config"), kubeconfig); err != nil {
			return err
		}
		if err := m.startPlane(ctx, m.planes[n]); err != nil {
			return err
		}
	}
	err = await(ctx, startTime, "the mesh's roots", func(ctx context.Context) error { return r.mountRoots(ctx, textOf(m.root)) })
	if err != nil {
		return err
	}
	r.options.progress("starting %d sidecars", m.Proxies())
	if err := r.startSidecars(ctx); err != nil {
		return err
	}
	r.acks.start()
	return r.awaitQuiet(ctx, startTime)
}

func (r *run) startSidecars(ctx context.Context) error {
	for i, name := range r.mesh.proxies() {
		pod := r.mesh.path("pods", name+".yaml")
		if err := os.WriteFile(pod, []byte(r.mesh.pod(name)), 0o600); err != nil {
			return err
		}
		if err := r.mesh.addSidecar(i, name, pod); err != nil {
			return err
		}
		if err := r.mesh.sidecars[i].start(); err != nil {
			return err
		}
	}
	for _, s := range r.mesh.sidecars {
		if err := r.mesh.awaitSidecar(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// writeFirst writes the mesh as it is when the plan begins.
func (r *run) writeFirst(ctx context.Context) error {
	r.acks = newAcker(r.mesh, r.history, r.found)
	fixed := r.mesh.fixed()
	for _, prefix := range []string{"namespace", "account", "service", "sidecar", "pod"} { // a Pod needs its account
		for name, object := range fixed {
			if strings.HasPrefix(name, prefix) {
				if err := r.writeOnce(ctx, name, object); err != nil {
					return err
				}
			}
		}
	}
	for object, state := range r.mesh.objects() {
		if err := r.write(ctx, object, state); err != nil {
			return err
		}
	}
	return nil
}

// writeOnce writes an object that the plan does not change. Its API server may not be ready for all kinds yet.
func (r *run) writeOnce(ctx context.Context, name, object string) error {
	return await(ctx, startTime, name, func(ctx context.Context) error { return r.place.put(ctx, name, object) })
}

// write changes an object, and repeats it until the place has taken it.
func (r *run) write(ctx context.Context, object, state string) error {
	was := r.history.newest(object)
	if state == none && (was.number == 0 || was.state == none) {
		if was.number == 0 {
			r.history.ack(object, r.history.begin(object, none), time.Now()) // there never was one
		}
		return nil
	}
	number := r.history.begin(object, state)
	last, yaml := r.next(object, state, number)
	if state == none {
		if err := until(ctx, func(ctx context.Context) error { return r.place.remove(ctx, object, last) }); err != nil {
			return err
		}
		return r.acks.expect(object, number, last, true)
	}
	err := until(ctx, func(ctx context.Context) error { return r.place.put(ctx, object, yaml) })
	switch state {
	case unacceptable: // it gets no ACK
		r.acks.forget(object)
		r.history.ack(object, number, time.Now())
		return err
	case invalid:
		r.acks.forget(object)
		return ignoreRefusal(r, err)
	}
	if err != nil {
		return err
	}
	return r.acks.expect(object, number, yaml, false)
}

// next returns the YAML of an object as it was last written, and as it is written next. A directory of files changes all
// documents of an object at once; then only an invalid route leaves the last valid one in force, which needs its subsets.
func (r *run) next(object, state string, number int) (last, yaml string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last = r.objects[object]
	kept := r.valid[object]
	if state != invalid {
		r.valid[object] = number
		if r.mesh.cluster == nil {
			kept = 0
		}
	}
	if state == none {
		delete(r.valid, object)
		return last, ""
	}
	yaml = r.mesh.object(object, state, number, kept)
	r.objects[object] = yaml
	return last, yaml
}

// ignoreRefusal counts an invalid object that the API server does not take.
func ignoreRefusal(r *run, err error) error {
	if err != nil {
		r.mu.Lock()
		r.refused++
		r.mu.Unlock()
	}
	return nil
}

// execute executes the plan under traffic, and waits for the end of all faults.
func (r *run) execute(ctx context.Context) error {
	r.traffic = startTraffic(r.mesh.layout, r.history, r.found)
	r.began = time.Now()
	faults, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, a := range r.options.Plan {
		if clock.Sleep(ctx, time.Until(r.began.Add(a.At))) != nil || r.broken() != nil {
			break
		}
		r.options.progress("%d of %d actions: %s", i, len(r.options.Plan), a)
		switch a.What {
		case write:
			r.change(ctx, a)
		case burst:
			r.burst(ctx, a)
		default:
			r.faults.Go(func() { r.record(a, func(e *event) error { return r.fault(faults, a, e) }) })
		}
	}
	if r.broken() == nil {
		_ = clock.Sleep(ctx, time.Until(r.began.Add(r.options.Time))) // reported below
	}
	if r.broken() != nil || ctx.Err() != nil {
		cancel()
	}
	r.faults.Wait()
	return errors.Join(r.broken(), ctx.Err())
}

func (r *run) broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// record executes an action, and records when it began and ended.
func (r *run) record(a Action, do func(*event) error) {
	e := event{Action: a, Began: time.Since(r.began).Seconds()}
	err := do(&e)
	e.Took = time.Since(r.began).Seconds() - e.Began
	if err != nil {
		e.Error = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if err != nil && !errors.Is(err, context.Canceled) && r.failed == nil {
		r.failed = fmt.Errorf("%s: %w", a, err)
	}
}

// change writes an object. A deletion whose object is not known to be everywhere is left out: its ACK could not be told
// from that of an earlier deletion.
func (r *run) change(ctx context.Context, a Action) {
	if v := r.history.newest(a.Target); a.State == none && v.acked.IsZero() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, event{Action: a, Began: time.Since(r.began).Seconds(), Skipped: true})
		return
	}
	r.record(a, func(*event) error { return r.write(ctx, a.Target, a.State) })
}

// burst writes or deletes many objects that no request depends on.
func (r *run) burst(ctx context.Context, a Action) {
	r.record(a, func(e *event) error {
		number := r.history.begin("noise", a.State)
		e.Count = 0 // of a deletion it is known only now
		if a.State != none {
			if err := r.putNoise(ctx, e, number, a.Count); err != nil || a.State != brief {
				return err
			}
		}
		return r.putNoise(ctx, e, number, 0)
	})
}

// putNoise writes so many objects of an event's group, and deletes the others. The last ones that were written are deleted
// first. It counts them in the event.
func (r *run) putNoise(ctx context.Context, e *event, number, count int) error {
	group := e.Target
	for i := range max(count, r.noise[group]) {
		do := r.place.put
		if i >= count {
			i = r.noise[group] - 1 - i + count
			do = r.place.remove
		}
		name, yaml := fmt.Sprintf("%s-%d", group, i), noise(group, i, number)
		if err := until(ctx, func(ctx context.Context) error { return do(ctx, name, yaml) }); err != nil && ctx.Err() != nil {
			return err
		}
		e.Count++
	}
	r.noise[group] = count
	return nil
}

// awaitQuiet waits until all changes are ACKed.
func (r *run) awaitQuiet(ctx context.Context, limit time.Duration) error {
	return await(ctx, limit, "ACKs of all changes", func(ctx context.Context) error {
		if open := r.acks.open(); len(open) > 0 {
			return fmt.Errorf("%d changes are not ACKed, for example %s", len(open), open[0].object)
		}
		for _, p := range r.mesh.planes {
			if !r.acks.settled(ctx, p) {
				return fmt.Errorf("%s: proxies have not ACKed everything", p.name)
			}
		}
		return nil
	})
}

// found records a violation.
func (r *run) found(v violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v.Offset = v.At.Sub(r.began).Seconds()
	if len(r.violations) >= mostViolations {
		r.more++
		return
	}
	r.violations = append(r.violations, v)
}

// crashed records a process that has ended although no fault ended it.
func (r *run) crashed(name string, err error) {
	r.found(violation{At: time.Now(), Kind: "crash", Subject: name, Text: err.Error()})
}

// end ends all parts.
func (r *run) end() {
	r.options.progress("ending all processes")
	if r.traffic != nil {
		r.traffic.stop()
	}
	if r.acks != nil {
		r.acks.stop()
	}
	r.mesh.stopAll()
	for _, a := range r.apps {
		a.stop()
	}
}

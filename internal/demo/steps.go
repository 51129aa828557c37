package demo

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/model"
)

// sample waits for n requests that begin from now on, and gives their results. What began
// before goes to total, and the sample too.
func (d *demo) sample(ctx context.Context, n int, total *Counts) (Counts, error) {
	total.merge(d.load.Next())
	if err := d.awaitRequests(ctx, fmt.Sprintf("%d requests", n), func(c Counts) bool { return c.Requests >= n }); err != nil {
		return Counts{}, err
	}
	c := d.load.Next()
	total.merge(c)
	return c, nil
}

func (d *demo) awaitRequests(ctx context.Context, what string, enough func(Counts) bool) error {
	patience := changePatience + 3*time.Duration(d.Sample)*time.Second/time.Duration(d.Rate)
	return await(ctx, patience, what, func(context.Context) error {
		if c := d.load.Counts(); !enough(c) {
			return fmt.Errorf("%s so far", c.String())
		}
		return nil
	})
}

// canary shifts reviews from v1 to v2.
func (d *demo) canary(ctx context.Context) error {
	d.title("Canary: reviews v1 -> v2, by weights of a VirtualService")
	total, ways, notes := newCounts(), []way{}, []string{}
	total.merge(d.load.Next())
	for _, v2 := range []int{10, 50, 100} {
		w, err := d.rewrite(ctx, model.KindVirtualService, reviews, canaryManifest(100-v2, v2))
		if err != nil {
			return err
		}
		ways = append(ways, w)
		d.tell(w)
		c, err := d.sample(ctx, d.Sample, &total)
		if err != nil {
			return err
		}
		got := 100 * c.Share(reviews, "v2", "v1", "v2")
		d.say("  intended %d/%d, measured %.1f/%.1f in %d requests", 100-v2, v2, 100-got, got, c.Requests)
		if off := math.Abs(got - float64(v2)); off > tolerance(v2, c.Requests) {
			return fmt.Errorf("reviews v2 got %.1f %% of the requests after the last ACK, not %d %%", got, v2)
		}
		notes = append(notes, fmt.Sprintf("%.0f %%", got))
	}
	if err := d.testers(ctx); err != nil {
		return err
	}
	total.merge(d.load.Next())
	d.traffic(total)
	d.finish("canary 90/10, 50/50, 0/100", "v2 measured: "+strings.Join(notes, ", "), total, ways...)
	return nil
}

// tolerance is how many percent a sample of n may be off: four standard deviations, so
// that chance fails one run in many thousands, and none at all for 0 and 100 %.
func tolerance(percent, n int) float64 {
	p := float64(percent) / 100
	return 400 * math.Sqrt(p*(1-p)/float64(max(n, 1)))
}

// testers checks that requests with a header go to v3.
func (d *demo) testers(ctx context.Context) error {
	const n = 20
	c := d.ask(ctx, n, frontPage, http.Header{"X-Demo-User": {"tester"}})
	d.say("  testers (header x-demo-user: tester) get v3: %d of %d", c.Versions[reviews+"/v3"], n)
	if c.Versions[reviews+"/v3"] != n {
		return fmt.Errorf("%d of %d testers got reviews v3: %v", c.Versions[reviews+"/v3"], n, c.reasons())
	}
	return nil
}

// ask makes n requests of its own, one after the other.
func (d *demo) ask(ctx context.Context, n int, url string, header http.Header) Counts {
	t := NewTally()
	for range n {
		t.begin()
		started := time.Now()
		a, status, err := get(ctx, d.load.client, url, header)
		t.end(started, time.Since(started), status, a, err)
	}
	return t.Counts()
}

// newEndpointAnswers is how many answers of a new endpoint are waited for.
const newEndpointAnswers = 20

// endpoints adds an endpoint, a process with its sidecar, and takes it away again.
func (d *demo) endpoints(ctx context.Context) error {
	d.title("Endpoints: one more instance of catalog comes and goes")
	total := newCounts()
	total.merge(d.load.Next())
	w := another(d.workloads, catalog)
	if err := d.join(ctx, w); err != nil {
		return err
	}
	added, err := d.rewrite(ctx, model.KindEndpointSlice, catalog+"-1", endpointsManifest(d.place, catalog, d.workloads))
	if err != nil {
		return err
	}
	d.tell(added)
	total.merge(d.load.Next())
	if err := d.awaitRequests(ctx, w.Name+" to answer", func(c Counts) bool { return c.Instances[w.Name] >= newEndpointAnswers }); err != nil {
		return err
	}
	c := d.load.Next()
	total.merge(c)
	d.say("  %s takes traffic: %d of %d answers of catalog", w.Name, c.Instances[w.Name], c.Versions[catalog+"/v1"])

	removed, err := d.leave(ctx, w, &total)
	if err != nil {
		return err
	}
	total.merge(d.load.Next())
	d.traffic(total)
	d.finish("endpoint added, removed", fmt.Sprintf("%s took traffic between", w.Name), total, added, removed)
	return nil
}

// join starts a workload and waits until it is ready. Nobody sends it anything yet.
func (d *demo) join(ctx context.Context, w Workload) error {
	started := time.Now()
	if err := d.write(workloadManifest(d.place, w)); err != nil {
		return err
	}
	d.workloads = append(d.workloads, w)
	if err := d.startApp(w); err != nil {
		return err
	}
	if err := d.startSidecar(w); err != nil {
		return err
	}
	if err := await(ctx, startPatience, w.Name+" to be ready", func(ctx context.Context) error { return d.ready(ctx, w) }); err != nil {
		return err
	}
	d.say("  %s and its sidecar are ready after %.1f s; now it becomes an endpoint", w.Name, time.Since(started).Seconds())
	return nil
}

// leave ends a workload: first every proxy learns that it goes, then it goes.
func (d *demo) leave(ctx context.Context, w Workload, total *Counts) (way, error) {
	removed, err := d.rewrite(ctx, model.KindEndpointSlice, catalog+"-1", endpointsManifest(d.place, catalog, d.workloads, w.Name))
	if err != nil {
		return way{}, err
	}
	d.tell(removed)
	c, err := d.sample(ctx, d.Sample/3, total)
	if err != nil {
		return way{}, err
	}
	d.say("  removed everywhere: %d of %d answers of catalog are from %s", c.Instances[w.Name], c.Versions[catalog+"/v1"], w.Name)
	if n := c.Instances[w.Name]; n > 0 {
		return way{}, fmt.Errorf("%s got %d requests that began after the last proxy had ACKed its removal", w.Name, n)
	}
	started := time.Now()
	d.stopSidecar(w)
	d.stopApp(w)
	d.workloads = d.workloads[:len(d.workloads)-1]
	if err := d.write(endpointsManifest(d.place, catalog, d.workloads)); err != nil {
		return way{}, err
	}
	d.say("  %s drained and ended in %.1f s", w.Name, time.Since(started).Seconds())
	return removed, remove(d.config, workloadPath(w))
}

// What the faults step configures.
const (
	abortStatus  = http.StatusTeapot
	faultDelay   = 300 * time.Millisecond
	routeTimeout = 200 * time.Millisecond
	slowAnswer   = 1000 // milliseconds
)

// faults makes ratings fail for requests that ask for it.
func (d *demo) faults(ctx context.Context) error {
	d.title("Faults: an abort, a delay and a timeout for ratings, by header %s only", markHeader)
	total := newCounts()
	total.merge(d.load.Next())
	set, err := d.rewrite(ctx, model.KindVirtualService, ratings, faultManifest())
	if err != nil {
		return err
	}
	d.tell(set)
	for _, f := range faultChecks {
		if err := d.check(ctx, f); err != nil {
			return err
		}
	}
	cleared, err := d.change(ctx, model.KindVirtualService, ratings, func() error { return remove(d.config, "routing/ratings.yaml") })
	if err != nil {
		return err
	}
	d.tell(cleared)
	if _, err := d.sample(ctx, d.Sample/3, &total); err != nil {
		return err
	}
	d.traffic(total)
	d.finish("faults set, cleared", "marked requests failed as meant, others did not", total, set, cleared)
	return nil
}

// faultCheck is what must become of requests with a mark.
type faultCheck struct {
	mark, url string
	n         int
	status    int
	least     time.Duration // that each takes
	most      time.Duration // 0: does not matter
	about     string
}

// timerSlack is how much too early Envoy's timers may be: they count from the moment at
// which its event loop last woke.
const timerSlack = 20 * time.Millisecond

var faultChecks = []faultCheck{
	{"abort", "http://" + ratings + "/", 20, abortStatus, 0, 0, "are answered 418 by Envoy"},
	{"delay", "http://" + ratings + "/", 5, http.StatusOK, faultDelay, 0, fmt.Sprintf("are held for %s, then answered", faultDelay)},
	{"timeout", fmt.Sprintf("http://%s/slow?ms=%d", ratings, slowAnswer), 5, http.StatusGatewayTimeout, routeTimeout,
		slowAnswer * time.Millisecond, fmt.Sprintf("are given up on after %s (ratings takes %d ms)", routeTimeout, slowAnswer)},
	{"", "http://" + ratings + "/", 20, http.StatusOK, 0, 0, "are answered as ever"},
}

func (d *demo) check(ctx context.Context, f faultCheck) error {
	header, name := http.Header{}, "requests without the header"
	if f.mark != "" {
		header.Set(markHeader, f.mark)
		name = fmt.Sprintf("requests with %s: %s", markHeader, f.mark)
	}
	c := d.ask(ctx, f.n, f.url, header)
	fastest, slowest := c.Quantile(0), c.Quantile(1)
	d.say("  %d of %d %s %s: took %.0f to %.0f ms", c.Statuses[f.status], f.n, name, f.about, ms(fastest), ms(slowest))
	switch {
	case c.Statuses[f.status] != f.n:
		return fmt.Errorf("%s: wanted status %d %d times, got %v: %v", name, f.status, f.n, c.Statuses, c.reasons())
	case fastest < f.least-timerSlack:
		return fmt.Errorf("%s: one took %s, less than %s", name, fastest, f.least)
	case f.most > 0 && fastest >= f.most:
		return fmt.Errorf("%s: none took less than %s: no timeout", name, f.most)
	}
	return nil
}

// broken breaks the VirtualService that is in force.
func (d *demo) broken(ctx context.Context) error {
	d.title("A broken VirtualService: refused, and what was in force stays")
	total := newCounts()
	total.merge(d.load.Next())
	file := brokenManifest()
	if err := d.write(file); err != nil {
		return err
	}
	written := time.Now()
	var problems []istioapi.Problem
	err := await(ctx, changePatience, "the problems to be told", func(ctx context.Context) (err error) {
		if problems, err = d.control.problems(ctx, file.Path); err == nil && len(problems) == 0 {
			err = fmt.Errorf("/debug/problems has none of %s", file.Path)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.say("  refused after %.0f ms; /debug/problems, the log and 'moonsail analyze' say:", ms(time.Since(written)))
	for _, p := range problems {
		d.say("    %s", d.relative(p.String()))
	}
	c, err := d.sample(ctx, d.Sample/2, &total)
	if err != nil {
		return err
	}
	d.say("  in force is still v1/v2 0/100: measured %.1f/%.1f", 100*c.Share(reviews, "v1", "v1", "v2"), 100*c.Share(reviews, "v2", "v1", "v2"))
	if c.Versions[reviews+"/v1"] > 0 {
		return fmt.Errorf("reviews v1 got %d requests after a VirtualService was refused", c.Versions[reviews+"/v1"])
	}
	if err := d.repair(ctx, file.Path); err != nil {
		return err
	}
	total.merge(d.load.Next())
	d.traffic(total)
	d.finish("broken VirtualService", fmt.Sprintf("refused with %d problems", len(problems)), total)
	return nil
}

// repair puts the good VirtualService back; it is what is in force, so nothing changes.
func (d *demo) repair(ctx context.Context, path string) error {
	if err := d.write(canaryManifest(0, 100)); err != nil {
		return err
	}
	err := await(ctx, changePatience, "the problems to go", func(ctx context.Context) error {
		problems, err := d.control.problems(ctx, path)
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("still told: %s", problems[0])
		}
		return err
	})
	if err == nil {
		d.say("  repaired: no problems left, and nothing to send, since it is what was in force")
	}
	return err
}

// relative shortens file names.
func (d *demo) relative(text string) string {
	return strings.ReplaceAll(text, d.config+string(filepath.Separator), "")
}

// awayFor is how long the mesh is without a control plane, in requests.
func (d *demo) awayFor() int { return d.Sample / 2 }

// restart kills the control plane and starts it again.
func (d *demo) restart(ctx context.Context) error {
	d.title("The control plane is killed (kill -9) and started again, under traffic")
	total := newCounts()
	total.merge(d.load.Next())
	d.plane.kill()
	c, err := d.sample(ctx, d.awayFor(), &total)
	if err != nil {
		return err
	}
	d.say("  without a control plane: %s", c.String())
	started := time.Now()
	if err := d.startPlane(); err != nil {
		return err
	}
	if err := await(ctx, startPatience, "the new control plane", d.control.ready); err != nil {
		return err
	}
	d.say("  the new one serves after %.0f ms", ms(time.Since(started)))
	if err := d.awaitSync(ctx); err != nil {
		return err
	}
	synced := time.Since(started)
	if _, err := d.sample(ctx, d.Sample/3, &total); err != nil {
		return err
	}
	again, err := d.control.sent(ctx)
	if err != nil {
		return err
	}
	d.say("  all %d proxies are synced again %.1f s after its start (they call again every 0 to 5 s)", len(d.workloads), synced.Seconds())
	d.say("  re-sent: %s (when the shop opened: %s)", again, d.opening)
	d.traffic(total)
	d.finish("control plane killed, restarted",
		fmt.Sprintf("synced after %.1f s, re-sent %d bytes", synced.Seconds(), again.Bytes), total)
	return nil
}

// goal is what the median of endpoint changes on the idle mesh should stay below.
const goal = 20 * time.Millisecond

// idle measures endpoint changes without traffic.
func (d *demo) idle(ctx context.Context) error {
	d.title("%d endpoint changes on the idle mesh", d.Flips)
	d.load.Pause()
	total := d.load.Next()
	all := endpointsManifest(d.place, reviews, d.workloads)
	less := endpointsManifest(d.place, reviews, d.workloads, "reviews-v3-1")
	var took []time.Duration
	var last way
	for i := range d.Flips {
		file := less
		if i%2 == 1 {
			file = all
		}
		w, err := d.rewrite(ctx, model.KindEndpointSlice, reviews+"-1", file)
		if err != nil {
			return err
		}
		took, last = append(took, w.total()), w
	}
	if err := d.write(all); err != nil {
		return err
	}
	d.tell(last)
	median := quantile(took, .5)
	text := fmt.Sprintf("event -> last of %s ACKs: median %.1f ms, 90 %% below %.1f ms, longest %.1f ms (goal: median below %d ms)",
		last.Proxies.Fraction(), ms(median), ms(quantile(took, .9)), ms(quantile(took, 1)), goal.Milliseconds())
	verdict := d.style.Good
	if median >= goal {
		verdict = d.style.Warn
	}
	d.say("  %s", paint(verdict, text))
	d.load.Resume()
	d.finish(fmt.Sprintf("%d endpoint changes, idle", d.Flips), fmt.Sprintf("median %.1f ms", ms(median)), total)
	return nil
}

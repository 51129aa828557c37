package demo

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// canary shifts reviews from v1 to v2 by weights.
func (d *demo) canary(ctx context.Context) error {
	d.beginStep("Canary: shift reviews from v1 to v2 by weights of a VirtualService")
	total, changes, notes := newCounts(), []timedChange{}, []string{}
	total.merge(d.load.Next())
	for _, v2 := range []int{10, 50, 100} {
		w, err := d.rewrite(ctx, model.KindVirtualService, reviews, canaryManifest(100-v2, v2))
		if err != nil {
			return err
		}
		changes = append(changes, w)
		d.printChange(w)
		c, err := d.sample(ctx, d.Sample, &total)
		if err != nil {
			return err
		}
		got := 100 * c.Share(reviews, "v2", "v1", "v2")
		d.logf("  intended %d/%d, measured %.1f/%.1f in %d requests", 100-v2, v2, 100-got, got, c.Requests)
		if off := math.Abs(got - float64(v2)); off > tolerance(v2, c.Requests) {
			return fmt.Errorf("reviews v2: got %.1f %% of the requests after the last ACK, instead of %d %%", got, v2)
		}
		notes = append(notes, fmt.Sprintf("%.0f %%", got))
	}
	if err := d.testers(ctx); err != nil {
		return err
	}
	total.merge(d.load.Next())
	d.printTraffic(total)
	d.addRow("canary 90/10, 50/50, 0/100", "v2 got "+strings.Join(notes, ", "), total, changes...)
	return nil
}

// tolerance returns the percentage points by which a sample of n may deviate: four standard deviations, so
// that chance fails one run in many thousands. For 0 and 100 % it is 0.
func tolerance(percent, n int) float64 {
	p := float64(percent) / 100
	return 400 * math.Sqrt(p*(1-p)/float64(max(n, 1)))
}

// testers checks that requests with a header go to v3.
func (d *demo) testers(ctx context.Context) error {
	const n = 20
	c := d.ask(ctx, n, frontPage, http.Header{"X-Demo-User": {"tester"}})
	d.logf("  testers (header x-demo-user: tester) get v3: %d of %d", c.Versions[reviews+"/v3"], n)
	if c.Versions[reviews+"/v3"] != n {
		return fmt.Errorf("reviews v3: got %d of %d requests of testers: %v", c.Versions[reviews+"/v3"], n, c.reasons())
	}
	return nil
}

// Settings of the faults.
const (
	abortStatus  = http.StatusTeapot
	faultDelay   = 300 * time.Millisecond
	routeTimeout = 200 * time.Millisecond
	slowAnswer   = 1000 // milliseconds
)

// faults makes ratings fail for requests with markHeader.
func (d *demo) faults(ctx context.Context) error {
	d.beginStep("Faults: abort, delay and time out calls of ratings, by header %s", markHeader)
	total := newCounts()
	total.merge(d.load.Next())
	set, err := d.rewrite(ctx, model.KindVirtualService, ratings, faultManifest())
	if err != nil {
		return err
	}
	d.printChange(set)
	for _, f := range faultChecks {
		if err := d.check(ctx, f); err != nil {
			return err
		}
	}
	cleared, err := d.change(ctx, model.KindVirtualService, ratings, func() error { return remove(d.config, "routing/ratings.yaml") })
	if err != nil {
		return err
	}
	d.printChange(cleared)
	if _, err := d.sample(ctx, d.Sample/3, &total); err != nil {
		return err
	}
	d.printTraffic(total)
	d.addRow("faults set, cleared", "only marked requests failed", total, set, cleared)
	return nil
}

// faultCheck is the expected result of requests with a mark.
type faultCheck struct {
	mark, url string
	n         int
	status    int
	least     time.Duration // minimum time of each
	most      time.Duration // the fastest is faster; 0: any
	about     string
}

// timerSlack is the time by which Envoy's timers may be early: they count from the
// last wake-up of its event loop.
const timerSlack = 20 * time.Millisecond

var faultChecks = []faultCheck{
	{"abort", "http://" + ratings + "/", 20, abortStatus, 0, 0, "are answered 418 by Envoy"},
	{"delay", "http://" + ratings + "/", 5, http.StatusOK, faultDelay, 0, fmt.Sprintf("are delayed by %s", faultDelay)},
	{"timeout", fmt.Sprintf("http://%s/slow?ms=%d", ratings, slowAnswer), 5, http.StatusGatewayTimeout, routeTimeout,
		slowAnswer * time.Millisecond, fmt.Sprintf("time out after %s (ratings takes %d ms)", routeTimeout, slowAnswer)},
	{"", "http://" + ratings + "/", 20, http.StatusOK, 0, 0, "are not affected"},
}

func (d *demo) check(ctx context.Context, f faultCheck) error {
	header, name := http.Header{}, "requests without the header"
	if f.mark != "" {
		header.Set(markHeader, f.mark)
		name = fmt.Sprintf("requests with %s: %s", markHeader, f.mark)
	}
	c := d.ask(ctx, f.n, f.url, header)
	fastest, slowest := c.Quantile(0), c.Quantile(1)
	d.logf("  %d of %d %s %s: took %.0f to %.0f ms", c.Statuses[f.status], f.n, name, f.about, ms(fastest), ms(slowest))
	switch {
	case c.Statuses[f.status] != f.n:
		return fmt.Errorf("%s: wanted status %d %d times, got %v: %v", name, f.status, f.n, c.Statuses, c.reasons())
	case fastest < f.least-timerSlack:
		return fmt.Errorf("%s: the fastest took %s, less than %s", name, fastest, f.least)
	case f.most > 0 && fastest >= f.most:
		return fmt.Errorf("%s: no timeout: the fastest took more than %s", name, f.most)
	}
	return nil
}

// broken breaks the VirtualService that is in force.
func (d *demo) broken(ctx context.Context) error {
	d.beginStep("A broken VirtualService is refused, and the last valid version stays in force")
	total := newCounts()
	total.merge(d.load.Next())
	file := brokenManifest()
	if err := d.write(file); err != nil {
		return err
	}
	written := time.Now()
	var problems []problem.Problem
	err := await(ctx, changeTimeout, "the problems of the file", func(ctx context.Context) (err error) {
		if problems, err = d.control.problems(ctx, file.Path); err == nil && len(problems) == 0 {
			err = fmt.Errorf("/debug/problems: nothing about %s", file.Path)
		}
		return err
	})
	if err != nil {
		return err
	}
	d.logf("  refused after %.0f ms; /debug/problems, the log and 'moonsail analyze' report:", ms(time.Since(written)))
	for _, p := range problems {
		d.logf("    %s", d.relative(p.String()))
	}
	c, err := d.sample(ctx, d.Sample/2, &total)
	if err != nil {
		return err
	}
	d.logf("  still in force: v1/v2 0/100, measured %.1f/%.1f", 100*c.Share(reviews, "v1", "v1", "v2"), 100*c.Share(reviews, "v2", "v1", "v2"))
	if c.Versions[reviews+"/v1"] > 0 {
		return fmt.Errorf("reviews v1: got %d requests after a VirtualService was refused", c.Versions[reviews+"/v1"])
	}
	if err := d.repair(ctx, file.Path); err != nil {
		return err
	}
	total.merge(d.load.Next())
	d.printTraffic(total)
	d.addRow("broken VirtualService", "refused; the last valid version stayed", total)
	return nil
}

// repair writes the valid VirtualService again. Nothing changes, since it is in force.
func (d *demo) repair(ctx context.Context, path string) error {
	if err := d.write(canaryManifest(0, 100)); err != nil {
		return err
	}
	err := await(ctx, changeTimeout, "the problems to disappear", func(ctx context.Context) error {
		problems, err := d.control.problems(ctx, path)
		if err == nil && len(problems) > 0 {
			err = fmt.Errorf("still reported: %s", problems[0])
		}
		return err
	})
	if err == nil {
		d.logf("  repaired: no problems left, and nothing to send")
	}
	return err
}

// relative removes the configuration directory from file names.
func (d *demo) relative(text string) string {
	return strings.ReplaceAll(text, d.config+string(filepath.Separator), "")
}

package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Requests that are in flight while an endpoint is removed, and their duration.
const (
	slowRequests = 12
	slowMillis   = 2500
)

// askSlowly begins slow requests to catalog. done waits for them and returns their results.
func (d *demo) askSlowly(ctx context.Context) (done func() Counts) {
	t := NewTally()
	url := fmt.Sprintf("http://%s/slow?ms=%d", catalog, slowMillis)
	for range slowRequests {
		t.begin()
		go func() {
			started := time.Now()
			a, status, err := get(ctx, d.load.client, url, nil)
			t.end(started, time.Since(started), status, a, err)
		}()
	}
	t.close()
	return func() Counts {
		<-t.done // each request ends after its timeout at the latest
		return t.Counts()
	}
}

// newEndpointAnswers is the number of answers of a new endpoint to wait for.
const newEndpointAnswers = 20

// endpoints adds an endpoint, a process with its sidecar, and removes it again.
func (d *demo) endpoints(ctx context.Context) error {
	d.beginStep("Endpoints: add an instance of catalog, and remove it")
	total := newCounts()
	total.merge(d.load.Next())
	w := another(d.workloads, catalog)
	if err := d.join(ctx, w); err != nil {
		return err
	}
	added, err := d.rewrite(ctx, model.KindEndpointSlice, catalog+"-1", endpointsManifest(d.addresses, catalog, d.workloads))
	if err != nil {
		return err
	}
	d.printChange(added)
	total.merge(d.load.Next())
	if err := d.awaitRequests(ctx, w.Name+" to answer", func(c Counts) bool { return c.Instances[w.Name] >= newEndpointAnswers }); err != nil {
		return err
	}
	c := d.load.Next()
	total.merge(c)
	d.logf("  %s serves: %d of %d answers of catalog", w.Name, c.Instances[w.Name], c.Versions[catalog+"/v1"])

	slow := d.askSlowly(ctx)
	removed, err := d.leave(ctx, w, &total)
	c = slow()
	if err != nil {
		return err
	}
	c.latencies = nil // they are slow on purpose
	total.merge(c)
	d.logf("  %d slow requests to catalog were in flight, %d of them at %s: %d answered", c.Requests, c.Instances[w.Name], w.Name, c.Statuses[http.StatusOK])
	total.merge(d.load.Next())
	d.printTraffic(total)
	d.addRow("endpoint added, removed", w.Name+" served in between", total, added, removed)
	return nil
}

// join starts a workload and waits until it is ready. It is not an endpoint yet.
func (d *demo) join(ctx context.Context, w Workload) error {
	started := time.Now()
	if err := d.write(workloadManifest(d.addresses, w)); err != nil {
		return err
	}
	d.workloads = append(d.workloads, w)
	if err := d.startApp(w); err != nil {
		return err
	}
	if err := d.startSidecar(w); err != nil {
		return err
	}
	if err := await(ctx, startTimeout, w.Name+" to be ready", func(ctx context.Context) error { return d.ready(ctx, w) }); err != nil {
		return err
	}
	d.logf("  %s and its sidecar are ready after %.1f s, and become an endpoint", w.Name, time.Since(started).Seconds())
	return nil
}

// leave ends a workload after every proxy has ACKed the removal of its endpoint.
func (d *demo) leave(ctx context.Context, w Workload, total *Counts) (timedChange, error) {
	removed, err := d.rewrite(ctx, model.KindEndpointSlice, catalog+"-1", endpointsManifest(d.addresses, catalog, d.workloads, w.Name))
	if err != nil {
		return timedChange{}, err
	}
	d.printChange(removed)
	c, err := d.sample(ctx, d.Sample/3, total)
	if err != nil {
		return timedChange{}, err
	}
	d.logf("  removed everywhere: %d of %d answers of catalog are from %s", c.Instances[w.Name], c.Versions[catalog+"/v1"], w.Name)
	if n := c.Instances[w.Name]; n > 0 {
		return timedChange{}, fmt.Errorf("%s: got %d requests that began after the last proxy had ACKed its removal", w.Name, n)
	}
	started := time.Now()
	d.stopSidecar(w)
	d.stopApp(w)
	d.workloads = d.workloads[:len(d.workloads)-1]
	if err := d.write(endpointsManifest(d.addresses, catalog, d.workloads)); err != nil {
		return timedChange{}, err
	}
	d.logf("  %s drained and ended in %.1f s", w.Name, time.Since(started).Seconds())
	return removed, remove(d.config, workloadPath(w))
}

// goal is the upper bound of the median of endpoint changes on the idle mesh.
const goal = 20 * time.Millisecond

// idle measures endpoint changes without traffic.
func (d *demo) idle(ctx context.Context) error {
	d.beginStep("%d endpoint changes on the idle mesh", d.Flips)
	d.load.Pause()
	total := d.load.Next()
	all := endpointsManifest(d.addresses, reviews, d.workloads)
	less := endpointsManifest(d.addresses, reviews, d.workloads, "reviews-v3-1")
	var took []time.Duration
	var last timedChange
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
	d.printChange(last)
	median := quantile(took, .5)
	text := fmt.Sprintf("event -> last of %s ACKs: median %.1f ms, 90 %% below %.1f ms, longest %.1f ms (goal: median below %d ms)",
		last.Proxies.Fraction(), ms(median), ms(quantile(took, .9)), ms(quantile(took, 1)), goal.Milliseconds())
	verdict := d.style.Good
	if median >= goal {
		verdict = d.style.Warn
	}
	d.logf("  %s", verdict(text))
	d.load.Resume()
	d.addRow(fmt.Sprintf("%d endpoint changes, idle", d.Flips), fmt.Sprintf("median %.1f ms", ms(median)), total)
	return nil
}

package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Requests that are under way while an endpoint goes, and how long they take.
const (
	slowRequests = 12
	slowMillis   = 2500
)

// askSlowly begins requests to catalog that take their time. done waits for them.
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
		<-t.done // each request ends by its timeout
		return t.Counts()
	}
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

	slow := d.askSlowly(ctx)
	removed, err := d.leave(ctx, w, &total)
	c = slow()
	if err != nil {
		return err
	}
	c.latencies = nil // they are slow by intention
	total.merge(c)
	d.say("  %d slow requests to catalog were under way, %d of them at %s: %d answered", c.Requests, c.Instances[w.Name], w.Name, c.Statuses[http.StatusOK])
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

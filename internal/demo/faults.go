package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

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

package demo

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

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

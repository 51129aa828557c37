package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

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

package demo

import (
	"context"
	"fmt"
	"math"
	"time"
)

// restart kills the control plane and starts it again, and nothing else changes.
func (d *demo) restart(ctx context.Context) error {
	d.title("The control plane is killed (kill -9) and started again, under traffic")
	total := newCounts()
	total.merge(d.load.Next())
	note, err := d.replacePlane(ctx, &total, nil)
	if err != nil {
		return err
	}
	d.traffic(total)
	d.finish("control plane killed, restarted", note, total)
	return nil
}

// changeWhileAway kills it once more, and changes weights while it is away.
func (d *demo) changeWhileAway(ctx context.Context) error {
	d.title("Once more, and weights change while the control plane is away")
	total := newCounts()
	total.merge(d.load.Next())
	note, err := d.replacePlane(ctx, &total, func() error { return d.write(canaryManifest(50, 50)) })
	if err != nil {
		return err
	}
	c, err := d.sample(ctx, d.Sample, &total)
	if err != nil {
		return err
	}
	got := 100 * c.Share(reviews, "v2", "v1", "v2")
	d.say("  intended 50/50, measured %.1f/%.1f in %d requests", 100-got, got, c.Requests)
	if math.Abs(got-50) > tolerance(50, c.Requests) {
		return fmt.Errorf("reviews v2 got %.1f %% of the requests, not 50 %%, after a change while the control plane was away", got)
	}
	d.traffic(total)
	d.finish("changed while it was away", note, total)
	return nil
}

// replacePlane kills the control plane, lets requests go on without it, changes something
// where change is not nil, and waits until a new one has all proxies synced.
func (d *demo) replacePlane(ctx context.Context, total *Counts, change func() error) (note string, err error) {
	d.plane.kill()
	c, err := d.sample(ctx, d.Sample/2, total)
	if err != nil {
		return "", err
	}
	d.say("  without a control plane: %s", c.String())
	if change != nil {
		if err := change(); err != nil {
			return "", err
		}
	}
	started := time.Now()
	if err := d.startPlane(); err != nil {
		return "", err
	}
	if err := await(ctx, startPatience, "the new control plane", d.control.ready); err != nil {
		return "", err
	}
	d.say("  the new one serves after %.0f ms", ms(time.Since(started)))
	if err := d.awaitSync(ctx); err != nil {
		return "", err
	}
	synced := time.Since(started)
	if _, err := d.sample(ctx, d.Sample/3, total); err != nil {
		return "", err
	}
	again, err := d.control.sent(ctx)
	if err != nil {
		return "", err
	}
	d.say("  all %d proxies are synced again %.1f s after its start (Envoys call again within a second)", len(d.workloads), synced.Seconds())
	d.say("  re-sent: %s (when the shop opened: %s)", again, d.opening)
	return fmt.Sprintf("synced after %.1f s, re-sent %d bytes", synced.Seconds(), again.Bytes), nil
}

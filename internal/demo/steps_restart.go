package demo

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// restart kills the control plane and starts it again. Nothing else changes.
func (d *demo) restart(ctx context.Context) error {
	d.beginStep("Kill the control plane (kill -9), and start it again")
	total := newCounts()
	total.merge(d.load.Next())
	note, err := d.replacePlane(ctx, &total, nil)
	if err != nil {
		return err
	}
	d.printTraffic(total)
	d.addRow("control plane killed, restarted", note, total)
	return nil
}

// changeWhileDown kills the control plane again, and changes weights before it is back.
func (d *demo) changeWhileDown(ctx context.Context) error {
	d.beginStep("Change weights while the control plane is down")
	total := newCounts()
	total.merge(d.load.Next())
	note, err := d.replacePlane(ctx, &total, func() error { return d.write(canaryManifest(75, 25)) })
	if err != nil {
		return err
	}
	c, err := d.sample(ctx, d.Sample, &total)
	if err != nil {
		return err
	}
	got := 100 * c.Share(reviews, "v2", "v1", "v2")
	d.logf("  intended 75/25, measured %.1f/%.1f in %d requests", 100-got, got, c.Requests)
	if math.Abs(got-25) > tolerance(25, c.Requests) {
		return fmt.Errorf("reviews v2: got %.1f %% of the requests, instead of 25 %%, after a change while the control plane was down", got)
	}
	d.printTraffic(total)
	d.addRow("changed while it was down", note, total)
	return nil
}

// replacePlane kills the control plane, takes a sample without it, calls change
// unless it is nil, and starts a new control plane. It waits until all proxies are synced.
func (d *demo) replacePlane(ctx context.Context, total *Counts, change func() error) (note string, err error) {
	d.plane.kill()
	c, err := d.sample(ctx, d.Sample/2, total)
	if err != nil {
		return "", err
	}
	d.logf("  without a control plane: %s", c.String())
	if change != nil {
		if err := change(); err != nil {
			return "", err
		}
	}
	started := time.Now()
	if err := d.startPlane(); err != nil {
		return "", err
	}
	if err := await(ctx, startTimeout, "the new control plane", d.control.ready); err != nil {
		return "", err
	}
	d.logf("  the new control plane is ready after %.0f ms", ms(time.Since(started)))
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
	d.logf("  all %d proxies are synced again %.1f s after its start (Envoys reconnect within a second)", len(d.workloads), synced.Seconds())
	d.logf("  re-sent: %s (at the start: %s)", again, d.opening)
	return fmt.Sprintf("synced after %.1f s, re-sent %d bytes", synced.Seconds(), again.Bytes), nil
}

// explainCommands are commands about changes of the demo.
var explainCommands = [][]string{
	{"explain", "virtualservice/" + reviews, "-n", Namespace},
	{"explain", "endpointslice/" + reviews + "-1", "-n", Namespace},
}

// explain runs `moonsail explain` for changes of the demo. It changes the VirtualService first: the control plane
// that runs now knows earlier changes of it only as a part of its start.
func (d *demo) explain(ctx context.Context) error {
	d.beginStep("Change weights once more, and explain the changes")
	changed, err := d.rewrite(ctx, model.KindVirtualService, reviews, canaryManifest(50, 50))
	if err != nil {
		return err
	}
	d.printChange(changed)
	for _, q := range explainCommands {
		if err := d.command(ctx, "", append(q[:len(q):len(q)], "--address", d.control.http)...); err != nil {
			return err
		}
	}
	return nil
}

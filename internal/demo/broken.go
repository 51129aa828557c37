package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/config/problem"
)

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
	var problems []problem.Problem
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
	d.finish("broken VirtualService", "refused; what was in force stayed", total)
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

package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"
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

package propagation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/debug"
	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/floor"
	"github.com/moonsail/moonsail/internal/telemetry"
)

// A proxy's clock stops when it has written its ACK, a server's when it has read the last one: then
// it knows that the change is everywhere. What a server does between its last response and that ACK is
// in the second time alone. Both processes are on one machine, so their clocks are the same.

// Looks at a server that may not have read all yet, where the CPUs are busy with other things.
const (
	heardTick     = 5 * time.Millisecond
	newestChanges = 8 // of a control plane are looked at: one change of the lab's is a few at most
)

// heardFrom asks a server when it had read the last answer to what came since a moment; the zero time: not yet.
type heardFrom func(ctx context.Context, since time.Time) (time.Time, error)

// askHeard adds to a sample when the server knew that all had the change. It is for changes that all proxies
// answer, and comes before the next one.
func (s *subject) askHeard(ctx context.Context, out *Sample) error {
	if s.answered == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	tick := time.NewTicker(heardTick)
	defer tick.Stop()
	for {
		at, err := s.answered(ctx, out.began)
		if err != nil {
			return fmt.Errorf("%s: when it had read the last ACK: %w", s.name, err)
		}
		if !at.IsZero() {
			out.Heard = millis(at.Sub(out.began.Round(0))) // of other processes there is no monotonic clock
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: it has not read all ACKs: %w", s.name, ctx.Err())
		}
	}
}

// changeLog asks a control plane for its changes.
func changeLog(p *child.Process) heardFrom {
	return func(ctx context.Context, since time.Time) (last time.Time, err error) {
		var list debug.ChangeList
		if err := getJSON(ctx, fmt.Sprintf("http://%s/debug/changes?n=%d", p.HTTP(), newestChanges), &list); err != nil {
			return last, err
		}
		for _, c := range list.Changes {
			at := c.Times.LastAcked
			switch {
			case c.Observed.Before(since):
			case c.State != telemetry.Distributed:
				return time.Time{}, nil
			case at.After(last):
				last = at
			}
		}
		return last, nil
	}
}

// answeredPage asks a server of package floor.
func answeredPage(p *child.Process) heardFrom {
	return func(ctx context.Context, since time.Time) (time.Time, error) {
		var a floor.Answered
		if err := getJSON(ctx, "http://"+p.HTTP()+floor.AnsweredPage, &a); err != nil || a.Open > 0 || a.Last.Before(since) {
			return time.Time{}, err
		}
		return a.Last, nil
	}
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.Unmarshal(b, into)
}

package propagation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/floor"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
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
	for {
		at, err := s.answered(ctx, out.began)
		if err != nil {
			return fmt.Errorf("%s: when it had read the last ACK: %w", s.name, err)
		}
		if !at.IsZero() {
			out.Heard = millis(at.Sub(out.began.Round(0))) // of other processes there is no monotonic clock
			return nil
		}
		if err := experiment.Wait(ctx, heardTick); err != nil {
			return fmt.Errorf("%s: it has not read all ACKs: %w", s.name, err)
		}
	}
}

// changeLog asks a control plane for its changes.
func changeLog(p *child.Process) heardFrom {
	return func(ctx context.Context, since time.Time) (last time.Time, err error) {
		list, err := changesOf(ctx, &once, p.HTTP(), newestChanges, 0)
		if err != nil {
			return last, err
		}
		for _, c := range list {
			at := c.Times.LastAcked
			switch {
			case c.Observed.Before(since):
			case c.State != changelog.Distributed:
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
		if err := getJSON(ctx, &once, "http://"+p.HTTP()+floor.AnsweredPage, &a); err != nil || a.Open > 0 || a.Last.Before(since) {
			return time.Time{}, err
		}
		return a.Last, nil
	}
}

// once leaves no connection behind that a server would look after while it is measured.
var once = http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

// changesOf asks a control plane for n of its changes after a revision, newest first.
func changesOf(ctx context.Context, client *http.Client, address string, n int, after model.Revision) ([]changelog.Change, error) {
	var list debug.ChangeList
	err := getJSON(ctx, client, fmt.Sprintf("http://%s/debug/changes?n=%d&after=%d", address, n, after), &list)
	return list.Changes, err
}

func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	b, err := getPage(ctx, client, url)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

func getPage(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}

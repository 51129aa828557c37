package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/lab/baseline"
	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// There are two ends of a change: when the last proxy has written its ACK (Sample.Last), and when the server has
// read it (Sample.Heard). The second includes the server's work between its last response and that ACK. Both
// processes run on one machine and share its clock.

// Reads from a server that may not have read all ACKs yet because the CPUs are busy.
const (
	heardTick     = 5 * time.Millisecond
	newestChanges = 8 // read from a control plane: one change of the lab is a few there
)

// heardFrom returns when a server had read the last ACK of the changes since a time; zero: not yet.
type heardFrom func(ctx context.Context, since time.Time) (time.Time, error)

// AskHeard sets Sample.Heard. It is for changes that all proxies ACK, and must be called before the next change.
func (s *Subject) AskHeard(ctx context.Context, out *results.Sample) error {
	if s.answered == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ChangeTime)
	defer cancel()
	for {
		at, err := s.answered(ctx, out.Began)
		if err != nil {
			return fmt.Errorf("%s: cannot read when the last ACK arrived: %w", s.Name, err)
		}
		if !at.IsZero() {
			out.Heard = results.Millis(at.Sub(out.Began.Round(0))) // clocks of other processes are not monotonic
			return nil
		}
		if err := clock.Sleep(ctx, heardTick); err != nil {
			return fmt.Errorf("%s: has not read all ACKs: %w", s.Name, err)
		}
	}
}

// changeLog reads the change log of a control plane.
func changeLog(p *child.Process) heardFrom {
	return func(ctx context.Context, since time.Time) (last time.Time, err error) {
		list, err := ChangesOf(ctx, &once, p.HTTP(), newestChanges, 0)
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

// answeredPage reads the page of a server of package baseline.
func answeredPage(p *child.Process) heardFrom {
	return func(ctx context.Context, since time.Time) (time.Time, error) {
		var a baseline.Answered
		if err := getJSON(ctx, &once, "http://"+p.HTTP()+baseline.AnsweredPage, &a); err != nil || a.Open > 0 || a.Last.Before(since) {
			return time.Time{}, err
		}
		return a.Last, nil
	}
}

// once leaves no connection open, which would cost the server time during a measurement.
var once = http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}

// ChangesOf returns n changes of a control plane after a revision, newest first.
func ChangesOf(ctx context.Context, client *http.Client, address string, n int, after model.Revision) ([]changelog.Change, error) {
	var list debug.ChangeList
	err := getJSON(ctx, client, fmt.Sprintf("http://%s/debug/changes?n=%d&after=%d", address, n, after), &list)
	return list.Changes, err
}

func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	b, err := GetPage(ctx, client, url)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// GetPage returns the body of a page, or an error if its status is not 200.
func GetPage(ctx context.Context, client *http.Client, url string) ([]byte, error) {
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

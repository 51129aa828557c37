package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// control reads debug pages of the control plane.
type control struct {
	xds, http string // addresses
	client    http.Client
}

const controlTimeout = 5 * time.Second

func newControl(xds, httpAddr string) *control {
	return &control{xds: xds, http: httpAddr, client: http.Client{
		Timeout:   controlTimeout,
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
	}}
}

func (c *control) do(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.http+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return resp, nil
}

func (c *control) get(ctx context.Context, path string, answer any) error {
	resp, err := c.do(ctx, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(answer)
}

// ready returns nil if the control plane serves its configuration.
func (c *control) ready(ctx context.Context) error {
	var answer any
	return c.get(ctx, "/ready", &answer)
}

// changes returns the changes after a revision, newest first.
func (c *control) changes(ctx context.Context, after model.Revision, n int) (debug.ChangeList, error) {
	var list debug.ChangeList
	err := c.get(ctx, fmt.Sprintf("/debug/changes?after=%d&n=%d", after, n), &list)
	return list, err
}

func (c *control) newest(ctx context.Context) (model.Revision, error) {
	list, err := c.changes(ctx, 0, 1)
	return list.Newest, err
}

// find returns the newest change of an object after a revision. It fails if the change is not
// distributed yet.
func (c *control) find(ctx context.Context, after model.Revision, key model.Key) (changelog.Change, error) {
	list, err := c.changes(ctx, after, 100)
	if err != nil {
		return changelog.Change{}, err
	}
	for _, change := range list.Changes {
		if !has(change, key) {
			continue
		}
		if change.State != changelog.Distributed {
			return changelog.Change{}, fmt.Errorf("%s: revision %d is not distributed: ACKed by %s", key, change.Revision, change.Proxies)
		}
		return change, nil
	}
	return changelog.Change{}, fmt.Errorf("%s: the control plane has not seen the change", key)
}

func has(c changelog.Change, key model.Key) bool {
	for _, o := range c.Objects {
		if o.Key == key {
			return true
		}
	}
	return false
}

// synced returns nil if the proxies of all workloads are connected and have ACKed everything.
func (c *control) synced(ctx context.Context, want []Workload) error {
	var list debug.ProxyList
	if err := c.get(ctx, "/debug/proxies", &list); err != nil {
		return err
	}
	have := map[string]*server.ProxyState{}
	for i := range list.Proxies {
		have[list.Proxies[i].Name] = &list.Proxies[i]
	}
	for _, w := range want {
		p := have[w.Name]
		if p == nil {
			return fmt.Errorf("%s: not connected", w.Name)
		}
		if err := settled(p); err != nil {
			return err
		}
	}
	return nil
}

// settled returns nil if no resource is in flight to a proxy, waits, or was refused.
func settled(p *server.ProxyState) error {
	asked := 0
	for i := range p.Types {
		t := &p.Types[i]
		switch t.Progress() {
		case server.TypeRefused:
			return fmt.Errorf("%s: refused %s %s: %s", p.Name, t.Type, t.Held[0].Name, t.Held[0].Message)
		case server.TypeInFlight:
			return fmt.Errorf("%s: has not answered %s", p.Name, t.Type)
		case server.TypeWaiting:
			return fmt.Errorf("%s: %s waits for %s", p.Name, t.Type, t.Waiting)
		}
		if (t.Type == "CDS" || t.Type == "LDS") && (t.Wildcard || t.Subscribed > 0) {
			asked++
		}
	}
	if asked < 2 {
		return fmt.Errorf("%s: has not subscribed to clusters and listeners yet", p.Name)
	}
	return nil
}

// sent counts the responses and bytes that the control plane has sent since its start.
type sent struct {
	Responses, Bytes int64
}

// String returns both counts as a text.
func (s sent) String() string {
	return fmt.Sprintf("%.1f KB in %d responses", float64(s.Bytes)/1e3, s.Responses)
}

// sent reads the metrics pilot_xds_pushes and pilot_xds_config_size_bytes.
func (c *control) sent(ctx context.Context) (sent, error) {
	resp, err := c.do(ctx, "/metrics")
	if err != nil {
		return sent{}, err
	}
	defer resp.Body.Close()
	var out sent
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name, _, _ := strings.Cut(name, "{"); name {
		case "pilot_xds_pushes":
			out.Responses += int64(n)
		case "pilot_xds_config_size_bytes_sum":
			out.Bytes += int64(n)
		}
	}
	return out, nil
}

// problems returns the problems of a file of the configuration.
func (c *control) problems(ctx context.Context, file string) ([]problem.Problem, error) {
	var page struct {
		Problems controlplane.Problems `json:"problems"`
	}
	if err := c.get(ctx, "/debug/problems", &page); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(page.Problems.Config, func(p problem.Problem) bool { return !strings.HasSuffix(p.File, file) }), nil
}

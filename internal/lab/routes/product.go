package routes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// product is `moonsail serve` on a mesh of files: it measures what the product makes of a changed VirtualService.
type product struct {
	process *child.Process
	files   productFiles
	dir     string
	seen    model.Revision // of the last change
	client  http.Client
}

// Time limits and intervals of a product.
const (
	changeTime = 20 * time.Second
	changeTick = 10 * time.Millisecond // before each request of the change log, which uses CPU time of the subject
	stopTime   = 3 * time.Second
)

// startProduct writes the mesh and starts the control plane on it.
func startProduct(ctx context.Context, o *Options, strategy string, m *mesh, up *upstream) (p *product, err error) {
	p = &product{client: http.Client{Timeout: changeTime, Transport: &http.Transport{DisableCompression: true}}}
	defer func() {
		if err != nil {
			p.stop()
			p = nil
		}
	}()
	if p.dir, err = meshfiles.TempDir("moonsail-product-"); err != nil {
		return p, err
	}
	p.files.mesh, p.files.upstream = m, up.port()
	if p.files.port, err = freePort(ctx); err != nil {
		return p, err
	}
	config := filepath.Join(p.dir, "config")
	if p.files.Directory, err = meshfiles.NewDirectory(config, filepath.Join(p.dir, "staging")); err != nil {
		return p, err
	}
	if err = p.files.writeAll(); err != nil {
		return p, err
	}
	p.process, err = child.Start(ctx, "the control plane", append(slices.Clone(o.Moonsail), "serve", "--config", config,
		"--xds-plaintext-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--log-format", "json", "--outbound-registry-only",
		"--route-strategy", strategy)...)
	return p, err
}

// freePort returns a free port for a listener of Envoy.
func freePort(ctx context.Context) (uint32, error) {
	up, err := startUpstream(ctx)
	if err != nil {
		return 0, err
	}
	defer up.stop()
	return up.port(), nil
}

// where returns the address at which its sidecar accepts requests.
func (p *product) where() string { return fmt.Sprintf("%s:%d", productAddress, p.files.port) }

// bootstrap returns its sidecar's bootstrap.
func (p *product) bootstrap(admin string) ([]byte, error) {
	b, err := sidecar(admin, p.process.Addr())
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(b)
}

func (p *product) stop() {
	p.client.CloseIdleConnections()
	if p.process != nil {
		p.process.Stop(stopTime)
	}
	_ = os.RemoveAll(p.dir) // the system removes it in the end
}

// pending is a change that was made.
type pending struct {
	service string
	begun   time.Time
}

// begin writes a service's newest routes into the files.
func (p *product) begin(i int) (pending, error) {
	c := pending{fmt.Sprintf("svc-%d", i), time.Now()}
	return c, p.files.change(i)
}

// change writes a service's newest routes into the files, and waits until they are distributed. took is the time from
// the first response to the ACK, from the change log.
func (p *product) change(ctx context.Context, i int) (took time.Duration, err error) {
	c, err := p.begin(i)
	if err != nil {
		return 0, err
	}
	all, err := p.await(ctx, []pending{c})
	if err != nil {
		return 0, err
	}
	return all[0], nil
}

// await waits until changes are distributed, which must be newer than all that were awaited before. It returns how long
// each took.
func (p *product) await(ctx context.Context, list []pending) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	for {
		if err := clock.Sleep(ctx, changeTick); err != nil {
			return nil, err
		}
		found, err := p.distributed(ctx, list)
		if err != nil {
			return nil, fmt.Errorf("the change of %s: %w: %s", list[0].service, err, p.process.Tail())
		}
		if len(found) < len(list) {
			continue
		}
		for _, c := range found {
			if c.Proxies.Acked != 1 {
				return nil, fmt.Errorf("the change of %s was not accepted: %+v", c.Objects[0].Name, c.Proxies)
			}
			p.seen = max(p.seen, c.Revision)
			took = append(took, c.Times.LastAcked.Sub(c.Times.FirstSent))
		}
		return took, nil
	}
}

// distributed returns those changes of VirtualServices that are settled. The first batches have the files as they were,
// and may be settled before there is a proxy.
func (p *product) distributed(ctx context.Context, list []pending) (found []*changelog.Change, err error) {
	const others = 4 // other changes
	page := fmt.Sprintf("http://%s/debug/changes?n=%d&after=%d", p.process.HTTP(), len(list)+others, p.seen)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var all debug.ChangeList
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		return nil, err
	}
	for _, want := range list {
		if i := slices.IndexFunc(all.Changes, want.is); i >= 0 {
			found = append(found, &all.Changes[i])
		}
	}
	return found, nil
}

// is reports whether a change is settled and contains the pending one.
func (c pending) is(x changelog.Change) bool {
	return x.State == changelog.Distributed && !x.Observed.Before(c.begun) && slices.ContainsFunc(x.Objects, func(o changelog.ChangedObject) bool {
		return o.Kind == model.KindVirtualService && o.Name == c.service
	})
}

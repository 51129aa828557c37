package wasm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// feed keeps plugins as the control plane has them. One goroutine, Run's, uses it.
type feed struct {
	keeper   *Keeper
	versions map[string]string  // of the plugins that are served as the control plane has them
	failed   map[string]*plugin // whose modules could not be fetched
	wait     time.Duration      // before they are tried again
	told     bool               // that the control plane is away
}

// Between two streams, and between attempts to fetch what failed.
const (
	againFirst  = 100 * time.Millisecond
	againMost   = 5 * time.Second
	fetchFirst  = 5 * time.Second
	fetchMost   = 5 * time.Minute
	fetches     = 4 // at the same time
	expireEvery = time.Hour
)

// errAgain ends a stream that is to be opened again: what was refused on it is to be taken back, or
// the other way round.
var errAgain = errors.New("again")

func (f *feed) run(ctx context.Context) {
	wait := againFirst
	for ctx.Err() == nil {
		received, err := f.stream(ctx)
		if received {
			wait = againFirst
		}
		if ctx.Err() == nil && err != errAgain && !f.told {
			f.told = true
			f.keeper.Log.Warn("no plugins come from the control plane; those that are known stay", "plugins", len(f.versions), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, againMost)
	}
}

// stream takes plugins until the stream breaks; received tells whether there were any.
func (f *feed) stream(ctx context.Context) (received bool, err error) {
	conn, err := f.keeper.Dial()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	first := &discoveryv3.DeltaDiscoveryRequest{Node: f.keeper.Node, TypeUrl: TypeURL, InitialResourceVersions: f.versions}
	if err := stream.Send(first); err != nil {
		return false, err
	}
	responses := make(chan *discoveryv3.DeltaDiscoveryResponse)
	var broken error // of the reader, once responses is closed
	reading.Go(func() {
		defer close(responses)
		for {
			var r *discoveryv3.DeltaDiscoveryResponse
			if r, broken = stream.Recv(); broken != nil {
				return
			}
			select {
			case responses <- r:
			case <-ctx.Done():
				broken = ctx.Err()
				return
			}
		}
	})
	return f.work(ctx, responses, stream.Send, func() error { return broken })
}

func (f *feed) work(ctx context.Context, responses <-chan *discoveryv3.DeltaDiscoveryResponse, send func(*discoveryv3.DeltaDiscoveryRequest) error, broken func() error) (received bool, err error) {
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	retry := time.NewTimer(f.retryIn())
	defer retry.Stop()
	for {
		var r *discoveryv3.DeltaDiscoveryResponse
		ok := true
		select {
		case r, ok = <-responses:
		case <-retry.C:
			var got bool
			if r, ok, got = f.retryUntil(ctx, responses); got {
				return received, errAgain // and what came meanwhile comes again
			}
		case <-f.keeper.again:
			f.forgetRefused()
			return received, errAgain
		case now := <-expire.C:
			f.keeper.Cache.Expire(now)
		}
		if !ok {
			return received, broken()
		}
		if r != nil {
			received, f.wait = true, fetchFirst
			if err := send(f.take(ctx, r)); err != nil {
				return received, err
			}
		}
		retry.Reset(f.retryIn())
	}
}

// retryUntil is retry until something comes from the control plane: a server that does not answer holds up
// no other plugin. r is what came, nil where nothing did; not ok: the stream has broken.
func (f *feed) retryUntil(ctx context.Context, responses <-chan *discoveryv3.DeltaDiscoveryResponse) (r *discoveryv3.DeltaDiscoveryResponse, ok, got bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan bool, 1)
	go func() { done <- f.retry(ctx) }()
	select {
	case got = <-done:
		return nil, true, got
	case r, ok = <-responses:
		cancel()
		return r, ok, <-done
	}
}

// retryIn is how long nothing is to be tried again.
func (f *feed) retryIn() time.Duration {
	if len(f.failed) == 0 {
		return fetchMost
	}
	return max(f.wait, fetchFirst)
}

// take takes a response over, and gives the ACK, or the NACK that names the plugins that could not
// be.
func (f *feed) take(ctx context.Context, r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryRequest {
	if f.told {
		f.told = false
		f.keeper.Log.Info("plugins come from the control plane again")
	}
	for _, name := range r.RemovedResources {
		f.keeper.serve(name, nil)
		delete(f.versions, name)
		delete(f.failed, name)
	}
	out := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: TypeURL, ResponseNonce: r.Nonce}
	var texts []string
	for i, o := range f.putAll(ctx, r.Resources) {
		if o.err != nil {
			texts = append(texts, r.Resources[i].Name+": "+o.err.Error())
		}
		f.note(r.Resources[i], &o)
	}
	if len(texts) > 0 {
		out.ErrorDetail = &statuspb.Status{Code: int32(codes.Unavailable), Message: strings.Join(texts, "; ")}
	}
	return out
}

// outcome is what became of a resource.
type outcome struct {
	plugin *plugin // nil: it cannot be read
	err    error
}

// putAll serves plugins, few of them at the same time, in their order.
func (f *feed) putAll(ctx context.Context, resources []*discoveryv3.Resource) []outcome {
	out := make([]outcome, len(resources))
	limit := make(chan struct{}, fetches)
	var all sync.WaitGroup
	for i, res := range resources {
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			o := &out[i]
			if o.plugin, o.err = read(res); o.err == nil {
				o.err = f.keeper.put(ctx, o.plugin)
			}
		})
	}
	all.Wait()
	return out
}

// note notes what the control plane has, and what is to be tried again.
func (f *feed) note(res *discoveryv3.Resource, o *outcome) {
	delete(f.failed, res.Name)
	if o.err == nil {
		f.versions[res.Name] = res.Version
		return
	}
	f.keeper.Log.Error("plugin not taken; what was in force stays, else its failStrategy decides", "plugin", res.Name, "error", o.err)
	if o.plugin != nil && f.keeper.refusalOf(res.Name, res.Version) == "" {
		f.failed[res.Name] = o.plugin
	}
}

// retry fetches again what failed; it tells whether something was got.
func (f *feed) retry(ctx context.Context) bool {
	got := false
	for _, name := range slices.Sorted(maps.Keys(f.failed)) {
		p := f.failed[name]
		if err := f.keeper.put(ctx, p); err != nil {
			f.keeper.Log.Debug("module not fetched again", "plugin", name, "error", err)
			continue
		}
		f.keeper.Log.Info("plugin taken after all", "plugin", name)
		delete(f.failed, name)
		f.versions[name], got = p.version, true
	}
	f.wait = min(2*max(f.wait, fetchFirst), fetchMost)
	return got
}

// forgetRefused has the control plane send again what Envoy refused, to be told so.
func (f *feed) forgetRefused() {
	maps.DeleteFunc(f.versions, func(name, version string) bool { return f.keeper.refusalOf(name, version) != "" })
}

// put serves a plugin once its module is there. Where it cannot be had, and there is none yet, it
// is what its failStrategy says.
func (k *Keeper) put(ctx context.Context, p *plugin) error {
	if said := k.refusalOf(p.name, p.version); said != "" {
		return errors.New(said)
	}
	fallback, err := p.without()
	if err != nil {
		return err
	}
	path, release, err := k.Cache.Get(ctx, p.module)
	if err != nil {
		if now, _ := k.get(p.name); now == nil || now.standIn && now.version != p.version {
			k.serve(p.name, &served{version: p.version, config: fallback, fallback: fallback, standIn: true})
		}
		return fmt.Errorf("module %s is not there: %w", p.module.URL, err)
	}
	if now, _ := k.get(p.name); now != nil && !now.standIn && now.version == p.version {
		release() // it was sent again as others were refused
		return nil
	}
	config, err := p.with(path)
	if err != nil {
		release()
		return err
	}
	k.serve(p.name, &served{version: p.version, config: config, fallback: fallback, release: release})
	return nil
}

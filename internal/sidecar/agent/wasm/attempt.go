package wasm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// attempt is to serve a plugin, by a goroutine of its own: a server that does not answer holds up its own module and
// no other. It outlives streams, and ends with run.
type attempt struct {
	plugin *plugin
	late   bool // the control plane was told that the module is being fetched, and not what came of it
	cancel context.CancelFunc
	done   chan struct{} // closed in the end
	err    error         // to be read once done is closed
}

// failure is what came of a plugin's last attempt.
type failure struct {
	plugin *plugin
	err    error
}

// putAll serves plugins side by side, and tells what came of each within patience. What takes longer goes on;
// collect takes over what comes of it.
func (f *feed) putAll(ctx context.Context, resources []*discoveryv3.Resource) []error {
	out := make([]error, len(resources))
	attempts := make([]*attempt, len(resources))
	for i, res := range resources {
		attempts[i], out[i] = f.begin(ctx, res)
	}
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	for i, a := range attempts {
		if a != nil {
			out[i] = f.await(ctx, a)
		}
	}
	return out
}

// begin has a plugin served: by the attempt that goes on at that, or a new one. One that has failed is tried
// again by retry alone; until then its failure is the answer.
func (f *feed) begin(ctx context.Context, res *discoveryv3.Resource) (*attempt, error) {
	p, err := read(res)
	if err != nil {
		f.keeper.Log.Error(notTaken, "plugin", res.Name, "error", err)
		f.drop(res.Name)
		return nil, err
	}
	now, last := f.fetching[p.name], f.failed[p.name]
	switch {
	case now != nil && now.plugin.version == p.version:
		return now, nil
	case now == nil && last != nil && last.plugin.version == p.version:
		return nil, last.err
	}
	f.drop(p.name)
	return f.start(ctx, p), nil
}

const notTaken = "plugin not taken; what was in force stays, else its failStrategy decides"

// start begins an attempt; there is none for that plugin.
func (f *feed) start(ctx context.Context, p *plugin) *attempt {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &attempt{plugin: p, cancel: cancel, done: make(chan struct{})}
	f.fetching[p.name] = a
	go func() {
		a.err = f.keeper.put(ctx, p)
		close(a.done)
		select {
		case f.ended <- struct{}{}:
		default: // who takes the token looks at all
		}
	}()
	return a
}

// await is what came of an attempt by the end of ctx.
func (f *feed) await(ctx context.Context, a *attempt) error {
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	select {
	case <-a.done: // at last
		f.note(a)
		return a.err
	default:
	}
	if last := f.failed[a.plugin.name]; last != nil {
		return last.err
	}
	a.late = true
	return fmt.Errorf("module %s is not there: it is being fetched, and waited for", a.plugin.module.URL)
}

// collect takes over what attempts have come to; it tells whether the control plane is to hear of it.
func (f *feed) collect() (news bool) {
	for _, a := range f.fetching {
		select {
		case <-a.done:
			f.note(a)
			news = news || a.err == nil || a.late
		default:
		}
	}
	return news
}

// note notes what the control plane has, or what is to be tried again, of an attempt that has ended.
func (f *feed) note(a *attempt) {
	p, log := a.plugin, f.keeper.Log
	a.cancel()
	delete(f.fetching, p.name)
	again := f.failed[p.name] != nil
	switch {
	case a.err == nil:
		f.versions[p.name] = p.version
		delete(f.failed, p.name)
		if again || a.late {
			log.Info("plugin taken after all", "plugin", p.name)
		}
		return
	case again:
		log.Debug("module not fetched again", "plugin", p.name, "error", a.err)
	default:
		log.Error(notTaken, "plugin", p.name, "error", a.err)
	}
	if f.keeper.refusalOf(p.name, p.version) == "" {
		f.failed[p.name] = &failure{p, a.err}
	}
}

// retry fetches again what failed.
func (f *feed) retry(ctx context.Context) {
	for name, last := range f.failed {
		if f.fetching[name] == nil {
			f.start(ctx, last.plugin)
		}
	}
	f.wait = min(2*max(f.wait, fetchFirst), fetchMost)
}

// drop ends what goes on, or is to go on, to serve a plugin.
func (f *feed) drop(name string) {
	if a := f.fetching[name]; a != nil {
		a.cancel()
		<-a.done
	}
	delete(f.fetching, name)
	delete(f.failed, name)
}

// dropAll drops all.
func (f *feed) dropAll() {
	for _, name := range slices.Collect(maps.Keys(f.fetching)) {
		f.drop(name)
	}
}

// lacks tells whether nothing is in force but, at most, what another version's failStrategy says.
func (k *ModuleCache) lacks(p *plugin) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.served[p.name]
	return now == nil || now.version != p.version && (now.standIn || now.refused && now.before == nil)
}

// put serves a plugin once its module is there. Where it cannot be had, and there is none yet, it
// is what its failStrategy says.
func (k *ModuleCache) put(ctx context.Context, p *plugin) error {
	if said := k.refusalOf(p.name, p.version); said != "" {
		return errors.New(said)
	}
	fallback, err := p.without()
	if err != nil {
		return err
	}
	path, release, err := k.Cache.Get(ctx, p.module)
	switch {
	case ctx.Err() != nil && err != nil: // it is another by now, or gone
		return err
	case err != nil:
		if k.lacks(p) {
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

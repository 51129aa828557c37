package wasm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// attempt serves one plugin in a goroutine of its own, so that a server which does not answer delays only its module.
// It outlives streams, and ends with run.
type attempt struct {
	plugin *plugin
	late   bool // the control plane knows that the fetch continues, and needs the result
	cancel context.CancelFunc
	done   chan struct{} // closed at the end
	err    error         // valid after done is closed
}

// failure is the result of a plugin's last attempt.
type failure struct {
	plugin *plugin
	err    error
}

// putAll serves plugins concurrently, and returns the results that arrive within patience. Other attempts continue;
// collect gets their results.
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

// begin returns the running attempt to serve a plugin, or starts one. A failed plugin is only retried by retry; until
// then its failure is the answer.
func (f *feed) begin(ctx context.Context, res *discoveryv3.Resource) (*attempt, error) {
	p, err := read(res)
	if err != nil {
		f.cache.Log.Error(notTaken, "plugin", res.Name, "error", err)
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

const notTaken = "plugin not applied; the version before stays in force, or its failStrategy applies"

// start starts an attempt. There must be none for that plugin.
func (f *feed) start(ctx context.Context, p *plugin) *attempt {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &attempt{plugin: p, cancel: cancel, done: make(chan struct{})}
	f.fetching[p.name] = a
	go func() {
		a.err = f.cache.put(ctx, p)
		close(a.done)
		select {
		case f.ended <- struct{}{}:
		default: // a token already waits
		}
	}()
	return a
}

// await waits for an attempt, at most until ctx ends.
func (f *feed) await(ctx context.Context, a *attempt) error {
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	select {
	case <-a.done: // it has ended meanwhile
		f.note(a)
		return a.err
	default:
	}
	if last := f.failed[a.plugin.name]; last != nil {
		return last.err
	}
	a.late = true
	return fmt.Errorf("module %s is not there: it is still being fetched", a.plugin.module.URL)
}

// collect takes the results of attempts that have ended. It reports whether the control plane needs one.
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

// note stores the version of a plugin that is served, or the failure to retry.
func (f *feed) note(a *attempt) {
	p, log := a.plugin, f.cache.Log
	a.cancel()
	delete(f.fetching, p.name)
	again := f.failed[p.name] != nil
	switch {
	case a.err == nil:
		f.versions[p.name] = p.version
		delete(f.failed, p.name)
		if again || a.late {
			log.Info("plugin applied after a retry", "plugin", p.name)
		}
		return
	case again:
		log.Debug("module not fetched again", "plugin", p.name, "error", a.err)
	default:
		log.Error(notTaken, "plugin", p.name, "error", a.err)
	}
	if f.cache.refusalOf(p.name, p.version) == "" {
		f.failed[p.name] = &failure{p, a.err}
	}
}

// retry fetches failed modules again.
func (f *feed) retry(ctx context.Context) {
	for name, last := range f.failed {
		if f.fetching[name] == nil {
			f.start(ctx, last.plugin)
		}
	}
	f.wait = min(2*max(f.wait, fetchFirst), fetchMost)
}

// drop ends the attempts and retries of a plugin.
func (f *feed) drop(name string) {
	if a := f.fetching[name]; a != nil {
		a.cancel()
		<-a.done
	}
	delete(f.fetching, name)
	delete(f.failed, name)
}

// dropAll drops all plugins.
func (f *feed) dropAll() {
	for _, name := range slices.Collect(maps.Keys(f.fetching)) {
		f.drop(name)
	}
}

// lacks reports whether nothing is in force, or only another version's failStrategy.
func (c *ModuleCache) lacks(p *plugin) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.served[p.name]
	return now == nil || now.version != p.version && (now.standIn || now.refused && now.before == nil)
}

// put serves a plugin when its module is there. If the module cannot be fetched and nothing is in force, its
// failStrategy applies.
func (c *ModuleCache) put(ctx context.Context, p *plugin) error {
	if said := c.refusalOf(p.name, p.version); said != "" {
		return errors.New(said)
	}
	fallback, err := p.without()
	if err != nil {
		return err
	}
	path, release, err := c.Cache.Get(ctx, p.module)
	switch {
	case ctx.Err() != nil && err != nil: // the plugin has changed or is gone
		return err
	case err != nil:
		if c.lacks(p) {
			c.serve(p.name, &served{version: p.version, config: fallback, fallback: fallback, standIn: true})
		}
		return fmt.Errorf("module %s is not there: %w", p.module.URL, err)
	}
	if now, _ := c.get(p.name); now != nil && !now.standIn && now.version == p.version {
		release() // it was sent again because another one was refused
		return nil
	}
	config, err := p.with(path)
	if err != nil {
		release()
		return err
	}
	c.serve(p.name, &served{version: p.version, config: config, fallback: fallback, release: release})
	return nil
}

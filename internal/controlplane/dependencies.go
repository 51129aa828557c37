package controlplane

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
)

// Dependencies configures what is learned about calls between workloads.
type Dependencies struct {
	Learn bool
	// File keeps it, if the source is a directory; empty: it is lost when the control plane ends. With an API server, a
	// ConfigMap in the root namespace keeps it.
	File string
	// Every is the interval of reading proxies' metrics; 0: dependencies.DefaultEvery.
	Every time.Duration
}

// DependenciesName is the ConfigMap with learned dependencies, in the root namespace.
const DependenciesName = "moonsail-dependencies"

// dependenciesKey is the key of their bytes.
const dependenciesKey = "dependencies.json.gz"

// learning has the parts that learn dependencies.
type learning struct {
	memory  *dependencies.Memory
	keeper  *dependencies.Keeper
	scraper *dependencies.Scraper
	reports *dependencies.Reporter
}

// addLearning makes the parts that learn. It precedes the xDS server, which teaches and asks the memory.
func (p *parts) addLearning(context.Context) error {
	o := &p.opts
	if !o.Dependencies.Learn {
		return nil
	}
	memory := dependencies.NewMemory(time.Now)
	keeper := &dependencies.Keeper{Memory: memory, Log: o.Log}
	switch {
	case p.source.client != nil:
		store, err := p.source.client.SharedData(o.Mesh.RootNamespace, DependenciesName, dependenciesKey, keeper.Unreadable, dependencies.ErrChanged)
		if err != nil {
			return err
		}
		keeper.Store = store
	case o.Dependencies.File != "":
		keeper.Store = dependencies.File{Path: o.Dependencies.File}
	}
	scraper := &dependencies.Scraper{Memory: memory, Every: o.Dependencies.Every, Snapshot: p.pipeline.Snapshot}
	p.learning = &learning{memory, keeper, scraper, &dependencies.Reporter{Memory: memory, Scraper: scraper, Snapshot: p.pipeline.Snapshot, RootNamespace: o.Mesh.RootNamespace}}
	return nil
}

// run learns until ctx ends.
func (l *learning) run(ctx context.Context) {
	edges := newGroup(ctx)
	edges.run("keeper", endless(l.keeper.Run))
	edges.run("metrics of proxies", endless(l.scraper.Run))
	_ = edges.wait() // neither fails
}

// Package bench starts the pairs that several variants of an experiment measure in turn.
package bench

import (
	"context"
	"fmt"
	"net/url"

	"github.com/moonsail/moonsail/internal/lab/pair"
)

// Bench is a mesh and its pairs. Only the goroutine that runs an experiment uses it.
type Bench struct {
	Options pair.Options
	List    []Named // what Before starts, in this order

	mesh  *pair.Mesh
	pairs map[string]*pair.Pair
}

// Named is a pair to start.
type Named struct {
	Name  string
	Setup pair.Setup
}

// Before starts everything. It is the Before of an experiment.
func (b *Bench) Before(ctx context.Context) (stop func(), err error) {
	if b.mesh, err = pair.Start(ctx, b.Options); err != nil {
		return nil, err
	}
	b.pairs = map[string]*pair.Pair{}
	for _, n := range b.List {
		p, err := b.mesh.Pair(ctx, n.Setup)
		if err != nil {
			b.stop()
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
		b.pairs[n.Name] = p
	}
	return b.stop, nil
}

// Pair returns a pair by name, after Before.
func (b *Bench) Pair(name string) *pair.Pair { return b.pairs[name] }

func (b *Bench) stop() {
	for _, p := range b.pairs {
		p.Stop()
	}
	b.mesh.Stop()
}

// Address returns the address that a pair's load connects to.
func Address(p *pair.Pair) (string, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

package controlplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/source/jwks"
)

// ready returns a function with the reason why the control plane is not ready; nil: it is.
func (p *parts) ready() func() error {
	trust := p.webhook.trusted()
	return func() error {
		if err := p.source.waiting(); err != nil {
			return err
		}
		if !p.pipeline.Synced() {
			return errors.New("the configuration is not loaded yet")
		}
		return trust.Waiting(time.Now())
	}
}

// Problems is the body of /debug/problems.
type Problems struct {
	Config      problem.List     `json:"config"`      // in the sources
	Translation []engine.Failure `json:"translation"` // what could not be translated into Envoy's resources
}

func problems(ctx context.Context, s *source, e *engine.Engine, k *jwks.Cache, t *webhook.Trust) func() any {
	return func() any {
		return Problems{Config: joined(s.problems(), k.Problems(), lacking(e), unmatched(ctx, e), untrusted(t)), Translation: e.Failures()}
	}
}

// joined concatenates lists into a new one. The source's list is shared and must not grow.
func joined(lists ...problem.List) problem.List { return slices.Concat(lists...) }

// unmatched reports patches of EnvoyFilters that apply to connected proxies and find nothing to change.
func unmatched(ctx context.Context, e *engine.Engine) problem.List {
	var out problem.List
	for _, m := range e.PatchMatches(ctx) {
		if !m.Matched {
			out = append(out, envoyfilter.Unmatched(&m.Patch))
		}
	}
	return out
}

// maxLacking bounds how many hosts without an address a page names.
const maxLacking = 100

// lacking reports ServiceEntries for which no address is left.
func lacking(e *engine.Engine) problem.List {
	var out problem.List
	list := e.Lacking()
	for _, l := range list[:min(len(list), maxLacking)] {
		out = append(out, problem.Problem{Severity: problem.SeverityWarning, Code: code.AddressesExhausted, Object: l.Entry, Message: l.String()})
	}
	return out
}

package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/pipeline/envoyfilter"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrappatch"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// DefaultBootstrapTimeout is how long it is waited for what EnvoyFilters change of the bootstrap.
const DefaultBootstrapTimeout = 3 * time.Second

// maxTried bounds how many amendments are tried one by one, each by an Envoy that looks at the
// bootstrap and ends.
const maxTried = 16

// amend asks the control plane what EnvoyFilters change of the bootstrap, and writes it so. What
// Envoy would not start with is left out, and the control plane told. Without an answer the
// bootstrap is as it was.
func (a *agent) amend(parent context.Context) (stop func(), err error) {
	nothing := func() {}
	if a.BootstrapTimeout <= 0 {
		return nothing, nil
	}
	node, err := a.ownNode("bootstrap", agentapi.MetaExtensions)
	if err != nil {
		return nothing, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	bound, release := time.AfterFunc(a.BootstrapTimeout, cancel), context.AfterFunc(parent, cancel)
	talk, all, err := bootstrappatch.Ask(ctx, a.dialWithIdentity, node, a.log)
	if release(); err != nil || !bound.Stop() {
		cancel()
		talk.Close()
		a.log.Warn("the control plane does not say what EnvoyFilters change of the bootstrap; Envoy starts without it", "waited", a.BootstrapTimeout, "error", err)
		return nothing, nil
	}
	refused, err := a.applyAmendments(ctx, all)
	if err != nil {
		talk.Close()
	}
	if err != nil || !talk.Settle(refused) {
		cancel()
		return nothing, err
	}
	a.talk = talk
	done := make(chan struct{})
	go func() {
		defer close(done)
		talk.Watch(ctx)
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// dialWithIdentity waits for the workload's certificate: nobody is told anything without.
func (a *agent) dialWithIdentity(ctx context.Context) (*grpc.ClientConn, error) {
	for a.identity != nil {
		secrets, changed := a.identity.Secrets()
		if secrets.Leaf() != nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no certificate yet: %w", ctx.Err())
		}
	}
	return a.dialXDS()
}

// applyAmendments writes the bootstrap with those that Envoy takes, and tells why it does not take
// the others.
func (a *agent) applyAmendments(ctx context.Context, all []bootstrappatch.Patch) (refused map[string]string, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	var changes []*bootstrapv3.Bootstrap
	refused = map[string]string{}
	if why := a.tryBootstrap(ctx, changesOf(all)); why == "" {
		changes = changesOf(all)
	} else {
		changes = a.tryEach(ctx, all, refused)
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		a.log.Error("an EnvoyFilter's change of the bootstrap is left out", "filter", name, "error", refused[name])
	}
	a.amendments = changes
	return refused, a.writeBootstrap()
}

// tryEach adds one after the other, and leaves out those that Envoy does not take beside those
// before.
func (a *agent) tryEach(ctx context.Context, all []bootstrappatch.Patch, refused map[string]string) (taken []*bootstrapv3.Bootstrap) {
	for i, one := range all {
		why := fmt.Sprintf("Envoy does not take all %d EnvoyFilters that change the bootstrap; %d are tried one by one", len(all), maxTried)
		if i < maxTried {
			why = a.tryBootstrap(ctx, append(slices.Clone(taken), one.Change))
		}
		if why == "" {
			taken = append(taken, one.Change)
			continue
		}
		refused[one.Name] = why
	}
	return taken
}

func changesOf(all []bootstrappatch.Patch) []*bootstrapv3.Bootstrap {
	var out []*bootstrapv3.Bootstrap
	for _, one := range all {
		out = append(out, one.Change)
	}
	return out
}

// tryBootstrap tells why Envoy would not start with some changes; empty: it would.
func (a *agent) tryBootstrap(ctx context.Context, changes []*bootstrapv3.Bootstrap) (why string) {
	s := *a.settings
	s.amendments = changes
	content, err := s.bootstrapJSON()
	if err != nil {
		return err.Error()
	}
	file := filepath.Join(a.workDir, "envoy-bootstrap.try.json")
	defer func() { _ = os.Remove(file) }()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err.Error()
	}
	if err := envoy.Validate(ctx, a.binary, file); err != nil {
		return err.Error()
	}
	return ""
}

// dropAmendments has Envoy started again without amendments where it has not started with them; it
// tells whether there were any.
func (a *agent) dropAmendments(c *child) bool {
	if len(a.amendments) == 0 {
		return false
	}
	a.amendments = nil
	if err := a.writeBootstrap(); err != nil {
		a.log.Error("Envoy cannot be started without what EnvoyFilters change of its bootstrap", "error", err)
		return false
	}
	why := fmt.Sprintf("Envoy did not start with it (%s): %s", ending(c.process.Err()), strings.Join(c.output.last(), " "))
	a.log.Error("Envoy is started without what EnvoyFilters change of its bootstrap", "reason", why)
	a.talk.Drop(why)
	return true
}

// amended is a bootstrap with the amendments. Where they keep other statistics, those by code are
// made as well.
func (s *settings) amended(b *bootstrapv3.Bootstrap) *bootstrapv3.Bootstrap {
	for _, change := range s.amendments {
		envoyfilter.MergeBootstrap(b, change)
		if change.StatsConfig != nil {
			delete(b.Node.GetMetadata().GetFields(), agentapi.MetaUncounted)
		}
	}
	keepStep(b)
	return b
}

// keepStep has statistics be evicted every so many flushes, as Envoy wants it, where an amendment has
// changed how often they are flushed, in milliseconds, and not how often they are evicted.
func keepStep(b *bootstrapv3.Bootstrap) {
	flush := b.GetStatsFlushInterval().AsDuration().Truncate(time.Millisecond)
	if flush <= 0 || b.GetStatsEvictionInterval().AsDuration() != statsEviction {
		return
	}
	step := (statsEviction + flush - 1) / flush * flush
	b.StatsEviction = &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(step)}
}

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// FindIstiod returns a ready Pod of Istio's control plane in a namespace. Without a revision it is that of the default one, or of
// the only one.
func (c *Cluster) FindIstiod(ctx context.Context, cluster *kube.Client, namespace, revision string) (*kube.Pod, error) {
	pods, err := cluster.Pods(ctx, namespace)
	if err != nil {
		return nil, c.Explain(err)
	}
	where := "namespace " + namespace
	running := slices.DeleteFunc(pods, func(p kube.Pod) bool { return !isControlPlane(&p) || isMoonsail(p) || !p.Running })
	revisions := revisionsOf(running)
	switch {
	case len(running) == 0:
		return nil, &terminal.UserError{What: "no Pod of istiod runs", Where: where,
			Next: "name its namespace with --istioNamespace, give its address as --from xds://HOST:15010, or give config dumps of its proxies"}
	case revision == "" && slices.Contains(revisions, model.DefaultRevision):
		revision = model.DefaultRevision
	case revision == "" && len(revisions) > 1:
		return nil, terminal.UsageError{Err: fmt.Errorf("several revisions of istiod run in %s: %s: choose one with --revision", where, strings.Join(revisions, ", "))}
	case revision == "":
		revision = revisions[0]
	}
	running = slices.DeleteFunc(running, func(p kube.Pod) bool { return revisionOf(&p) != revision })
	if len(running) == 0 {
		return nil, terminal.UsageError{Err: errors.New("--revision " + revision + ": no istiod has it: use one of " + strings.Join(revisions, ", "))}
	}
	if i := slices.IndexFunc(running, func(p kube.Pod) bool { return p.Ready }); i > 0 {
		return &running[i], nil
	}
	return &running[0], nil
}

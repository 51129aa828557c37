package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// probeTime bounds how long a control plane on this machine may take to accept a connection.
const probeTime = 500 * time.Millisecond

// Replicas returns the control planes to ask: the one at --address, or all Pods of one in a cluster. The first one is the
// one that Get asks. The choice is made once.
func (c *ControlPlane) Replicas(ctx context.Context) ([]*Replica, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.replicas) == 0 {
		found, err := c.find(ctx)
		if err != nil {
			return nil, err
		}
		c.replicas = found
	}
	return slices.Clone(c.replicas), nil
}

// find chooses where to ask, in the order that the help of --address describes. The caller holds mu.
func (c *ControlPlane) find(ctx context.Context) ([]*Replica, error) {
	inCluster := c.choosesCluster()
	given := c.AddressGiven()
	switch {
	case given && inCluster && !c.WithCluster:
		return nil, terminal.UsageError{Err: errors.New("--address excludes --kubeconfig, --context, --istioNamespace and --revision: give either")}
	case given, c.Address != "" && !inCluster:
		return []*Replica{c.replicaAt(c.Address)}, nil
	}
	access, known := c.Default()
	if !inCluster && (listens(ctx, DefaultAddress) || !known) {
		if len(access.Files) > 0 {
			c.note("asked the control plane on this machine (%s); --context or --istioNamespace selects the cluster", DefaultAddress)
		}
		return []*Replica{c.replicaAt(DefaultAddress)}, nil
	}
	if !known {
		return nil, terminal.UsageError{Err: errors.New("no cluster: give --kubeconfig, or create ~/.kube/config (not needed in a Pod)")}
	}
	return c.findPods(ctx, access)
}

// ClusterOf returns the cluster that flags choose, or in which the control plane was found, if there is one.
func (c *ControlPlane) ClusterOf() (access kube.Cluster, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inPod := len(c.replicas) > 0 && c.replicas[0].pod != nil
	if access, ok = c.Default(); !ok || !inPod && !c.choosesCluster() {
		return kube.Cluster{}, false
	}
	return access, true
}

// AddressGiven reports whether the flag --address is given. It precedes the variable, and a known cluster.
func (c *ControlPlane) AddressGiven() bool {
	return c.Address != "" && c.Address != os.Getenv(AddressEnv)
}

// ConfigDir returns the directory that is the source of the control plane at --address, or of the one on this machine if no cluster
// is known. where names the control plane. An empty dir means that there is none, or that its source is an API server; this is an error
// if --address names it, because the API server may be any.
func (c *ControlPlane) ConfigDir(ctx context.Context) (dir, where string, err error) {
	given := c.AddressGiven()
	_, known := c.Default()
	if c.Kubeconfig != "" || c.Context != "" || !given && (c.choosesCluster() || known || c.Address == "" && !listens(ctx, DefaultAddress)) {
		return "", "", nil
	}
	replicas, err := c.Replicas(ctx)
	if err != nil {
		return "", "", err
	}
	var source debug.Directory
	if err := c.Get(ctx, "/debug/source", &source); err != nil && !IsNotFound(err) { // 404: a control plane without a source
		return "", "", err
	}
	if source.Directory == "" {
		if given {
			return "", "", terminal.UsageError{Err: fmt.Errorf("--address: the source of %s is not a directory: choose its cluster with --context instead", replicas[0])}
		}
		return "", "", nil
	}
	const next = "name a copy of it as the argument"
	if !replicas[0].isLocal(ctx) || !filepath.IsAbs(source.Directory) {
		return "", "", &terminal.UserError{What: "the directory of the control plane is on another machine", Where: replicas[0].where(), Next: next}
	}
	if _, err := os.Stat(source.Directory); err != nil {
		return "", "", &terminal.UserError{What: "the directory of the control plane is not on this machine", Where: source.Directory, Err: err, Next: next}
	}
	return source.Directory, replicas[0].String(), nil
}

func listens(ctx context.Context, address string) bool {
	d := net.Dialer{Timeout: probeTime}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// findPods returns the control planes in a cluster, the ready ones first. The caller holds mu.
func (c *ControlPlane) findPods(ctx context.Context, access kube.Cluster) ([]*Replica, error) {
	cluster, err := kube.Connect(access)
	if err != nil {
		return nil, c.explain(err)
	}
	c.cluster = cluster
	namespace := cmp.Or(c.namespace, model.DefaultMesh().RootNamespace)
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	pods, err := cluster.Pods(ctx, namespace)
	switch {
	case kube.IsForbidden(err):
		return nil, &terminal.UserError{What: "cannot look for the control plane", Where: "namespace " + namespace, Err: err,
			Next: "grant this user the rights to list pods and to create pods/portforward there, or give --address"}
	case err != nil:
		return nil, c.explain(err)
	}
	chosen, err := c.choose(ctx, namespace, pods)
	if err != nil {
		return nil, err
	}
	var out []*Replica
	for i := range chosen {
		r, err := c.replicaIn(cluster, &chosen[i])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// choose returns the Pods of one control plane, the ready ones first. Moonsail's take precedence over istiod's, and those
// of the default revision, or of that of the tag "default", over others.
func (c *ControlPlane) choose(ctx context.Context, namespace string, pods []kube.Pod) ([]kube.Pod, error) {
	var running, down []kube.Pod
	for i := range pods {
		switch p := &pods[i]; {
		case !isControlPlane(p):
		case p.Running:
			running = append(running, *p)
		default:
			down = append(down, *p)
		}
	}
	if slices.ContainsFunc(running, isMoonsail) && c.revision == "" {
		running = slices.DeleteFunc(running, func(p kube.Pod) bool { return !isMoonsail(p) })
	}
	revisions := revisionsOf(running)
	revision := cmp.Or(c.revision, model.DefaultRevision)
	if c.revision == "" && len(revisions) > 0 && !slices.Contains(revisions, revision) {
		revision = revisions[0]
		if len(revisions) > 1 {
			revision, _ = c.cluster.RevisionOfTag(ctx, model.DefaultRevision) // an error, for example without the right: none
		}
		if !slices.Contains(revisions, revision) {
			return nil, terminal.UsageError{Err: fmt.Errorf("several control planes run in namespace %s, with the revisions %s: choose one with --revision", namespace, strings.Join(revisions, ", "))}
		}
	}
	if c.revision == "" && len(revisions) > 1 {
		others := slices.DeleteFunc(revisions, func(r string) bool { return r == revision })
		c.note("this covers the revision %s; the namespace has others too (%s): select one with --revision", revision, strings.Join(others, ", "))
	}
	chosen := slices.DeleteFunc(running, func(p kube.Pod) bool { return revisionOf(&p) != revision })
	if len(chosen) == 0 {
		return nil, c.noPods(namespace, revisions, down)
	}
	slices.SortFunc(chosen, func(a, b kube.Pod) int {
		if a.Ready != b.Ready {
			return map[bool]int{true: -1, false: 1}[a.Ready]
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return chosen, nil
}

// explain explains an error of an API server in which control planes are looked for.
func (c *ControlPlane) explain(err error) error {
	err = c.Cluster.Explain(err)
	if e, ok := errors.AsType[*terminal.UserError](err); ok {
		e.Next += ", or set --address to a control plane"
	}
	return err
}

// noPods returns the error for a namespace without a control plane to ask.
func (c *ControlPlane) noPods(namespace string, revisions []string, down []kube.Pod) error {
	where := "namespace " + namespace
	switch {
	case len(revisions) > 0:
		return &terminal.UserError{What: "no control plane has revision " + c.revision, Where: where,
			Next: "use one of " + strings.Join(revisions, ", ")}
	case len(down) > 0:
		return &terminal.UserError{What: "no Pod of the control plane runs", Where: where,
			Next: fmt.Sprintf("see 'kubectl -n %s describe pod %s'", namespace, down[0].Name)}
	}
	return &terminal.UserError{What: "no control plane found", Where: where,
		Next: "install one (see 'moonsail install --help'), or name its namespace with --istioNamespace, another cluster with --context, or its --address"}
}

// containerName is the name of the control plane's container, Moonsail's and istiod's.
const containerName = "discovery"

func isControlPlane(p *kube.Pod) bool {
	return slices.ContainsFunc(p.Containers, func(c kube.Container) bool { return c.Name == containerName })
}

// isMoonsail reports whether a control plane is Moonsail's.
func isMoonsail(p kube.Pod) bool {
	return slices.ContainsFunc(p.Containers, func(c kube.Container) bool {
		return c.Name == containerName && slices.Contains(c.Args, "serve")
	})
}

// revisionOf returns the revision of a control plane: its label, or its flag.
func revisionOf(p *kube.Pod) string {
	if r := p.Labels[model.LabelRevision]; r != "" {
		return r
	}
	for _, c := range p.Containers {
		for i, arg := range c.Args {
			if r, ok := strings.CutPrefix(arg, "--revision="); ok {
				return r
			}
			if arg == "--revision" && i+1 < len(c.Args) {
				return c.Args[i+1]
			}
		}
	}
	return model.DefaultRevision
}

func revisionsOf(pods []kube.Pod) []string {
	var out []string
	for i := range pods {
		out = append(out, revisionOf(&pods[i]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

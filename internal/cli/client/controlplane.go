// Package client is what commands share to reach what they ask about: the debug pages of a control plane
// (ControlPlane), the API server of a cluster (Cluster), objects by name (Object), and files of YAML.
//
// find.go chooses the control plane: an address, or the Pods of a cluster. replica.go asks one of its replicas.
//
// Each type has the flags that configure it and turns failures into errors that name the flag and the next step.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// ControlPlane is a client of the debug pages of a running control plane, which may have several replicas.
type ControlPlane struct {
	Cluster        // where to look for it without an address
	Address string // host:port or a URL; empty: see Replicas

	// WithCluster allows an address beside the flags of a cluster, for commands that read both.
	WithCluster bool

	namespace, revision                  string // of the control plane in a cluster; empty: the defaults
	tokenFile, caFile, certFile, keyFile string
	http                                 http.Client // tlsOnce sets its transport
	tlsOnce                              sync.Once   // guards tlsErr, too
	tlsErr                               error
	local                                bool // ask only this control plane, not its peers

	mu       sync.Mutex                  // guards the rest
	replicas []*Replica                  // empty: not chosen yet
	cluster  *kube.Client                // in which they are; nil: none
	notes    []string                    // to print at the end
	checks   []func(ctx context.Context) // of flags, which may add notes
	resolved map[string]string           // proxies that ResolveProxy chose
	// others is the number of control planes that the last answer leaves out; empty: none.
	others string
}

const (
	// DefaultAddress is where a control plane serves its debug pages.
	DefaultAddress = "127.0.0.1:15014"
	// Timeout bounds a request, unless Text gets a context with a deadline.
	Timeout   = 10 * time.Second
	maxAnswer = 256 << 20 // bytes
)

// AddressEnv is the variable with the default of --address.
const AddressEnv = "MOONSAIL_ADDRESS"

// AddFlags adds the flags that choose a control plane, and those for credentials, to cmd. Call it after RunE is set: it adds notes to
// stderr, for example when an answer leaves out other control planes.
func (c *ControlPlane) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&c.Address, "address", "", "`ADDRESS` of a control plane's --http-addr, as host:port or a URL (default: "+DefaultAddress+
		" if something listens there, else the Pods in the cluster)")
	terminal.EnvFlag(cmd, "address", AddressEnv)
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default: $KUBECONFIG, ~/.kube/config, or in a Pod its cluster)")
	_ = cmd.MarkFlagFilename("kubeconfig") // the only error is a flag that does not exist
	fs.StringVar(&c.Context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	fs.StringVarP(&c.namespace, "istioNamespace", "i", "", "`NAMESPACE` of the control plane in the cluster (default: "+model.DefaultMesh().RootNamespace+")")
	fs.StringVar(&c.revision, "revision", "", "`REVISION` of the control plane in the cluster (default: "+model.DefaultRevision+", or the only one)")
	c.addCredentials(cmd)
	terminal.Group(cmd, "Connection to a control plane",
		"address", "kubeconfig", "context", "istioNamespace", "revision", "token-file", "ca-file", "cert-file", "key-file")
	terminal.RepeatInHints(cmd, "address", "kubeconfig", "context", "istioNamespace", "revision", "token-file", "ca-file", "cert-file", "key-file")
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			defer c.close()
			defer c.printNotes(cmd.ErrOrStderr())
			if w := cmd.Flags().Lookup("watch"); w != nil && w.Changed {
				c.check(cmd.Context())
				c.flushNotes(cmd.ErrOrStderr())
				return run(cmd, args)
			}
			err := run(cmd, args)
			if err == nil {
				c.check(cmd.Context())
			}
			return err
		}
	}
}

// AddLocalFlag adds --local to cmd. Commands with it build their paths with Scoped.
func (c *ControlPlane) AddLocalFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.local, "local", false, "report only the proxies of the control plane that is asked, not those of its peers")
}

// Scoped returns the path of a page that covers all control planes, or one with --local.
func (c *ControlPlane) Scoped(page string) string {
	switch {
	case !c.local:
		return page
	case strings.Contains(page, "?"):
		return page + "&local"
	}
	return page + "?local"
}

// IsChosen reports whether a flag, or its environment variable, chooses the control plane.
func (c *ControlPlane) IsChosen() bool { return c.Address != "" || c.choosesCluster() }

func (c *ControlPlane) choosesCluster() bool {
	return c.Kubeconfig != "" || c.Context != "" || c.namespace != "" || c.revision != ""
}

func (c *ControlPlane) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.replicas {
		r.close()
	}
	if c.cluster != nil {
		c.cluster.Close()
	}
}

// check runs the checks of flags.
func (c *ControlPlane) check(ctx context.Context) {
	for _, check := range c.checks {
		check(ctx)
	}
}

// printNotes prints what an answer does not cover.
func (c *ControlPlane) printNotes(out io.Writer) {
	c.flushNotes(out)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, _ := strconv.Atoi(c.others); n > 0 && len(c.replicas) > 0 && n >= len(c.replicas) {
		fmt.Fprintf(out, "note: this covers only the proxies of the control plane at %s; %s more serve this mesh: ask them with --address\n", c.replicas[0].Name, c.others)
	}
}

// flushNotes prints the notes so far.
func (c *ControlPlane) flushNotes(out io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.notes {
		fmt.Fprintf(out, "note: %s\n", n)
	}
	c.notes = nil
}

// note adds a note. The caller holds mu.
func (c *ControlPlane) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *ControlPlane) noteOthers(others string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = others
}

// Get reads the JSON of a debug page into answer. If a replica cannot be reached, it asks the next one. The one that answers
// is asked first from then on, since revisions are numbers of each replica.
func (c *ControlPlane) Get(ctx context.Context, path string, answer any) error {
	return c.try(ctx, IsUnreachable, func(r *Replica) error { return r.Get(ctx, path, answer) })
}

// Text reads a page unchanged. If a replica cannot be reached or has no such page, for example for lack of a proxy, it asks the
// next one.
func (c *ControlPlane) Text(ctx context.Context, path string) ([]byte, error) {
	text, _, err := c.TextFrom(ctx, path)
	return text, err
}

// TextFrom is Text that also returns the replica that answered.
func (c *ControlPlane) TextFrom(ctx context.Context, path string) (text []byte, from *Replica, err error) {
	err = c.try(ctx, elsewhere, func(r *Replica) error {
		text, err = r.Text(ctx, path)
		from = r
		return err
	})
	return text, from, err
}

// IsUnreachable reports whether no control plane could be asked.
func IsUnreachable(err error) bool {
	var u unreachableError
	return errors.As(err, &u)
}

// elsewhere reports whether another replica may have what this one has not.
func elsewhere(err error) bool { return IsNotFound(err) || IsUnreachable(err) }

// try asks replicas in turn, until one succeeds or fails with an error for which another one may not. It returns the
// first error if all fail.
func (c *ControlPlane) try(ctx context.Context, another func(error) bool, ask func(*Replica) error) error {
	replicas, err := c.Replicas(ctx)
	if err != nil {
		return err
	}
	var first error
	for _, r := range replicas {
		err := ask(r)
		if err == nil || !another(err) {
			c.prefer(r)
			return err
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}

// Each asks all replicas at the same time. A replica that cannot be reached becomes a note, unless no replica answers.
// Otherwise, the error is that of the first replica that has one. ask gets the number of the replica.
func (c *ControlPlane) Each(ctx context.Context, ask func(i int, r *Replica) error) error {
	replicas, err := c.Replicas(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(replicas))
	var wg sync.WaitGroup
	for i, r := range replicas {
		wg.Go(func() { errs[i] = ask(i, r) })
	}
	wg.Wait()
	if !slices.ContainsFunc(errs, func(err error) bool { return !IsUnreachable(err) }) {
		return errs[0]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, err := range errs {
		switch {
		case IsUnreachable(err):
			if note := "this leaves out a control plane: " + err.Error(); !slices.Contains(c.notes, note) {
				c.notes = append(c.notes, note)
			}
		case err != nil:
			return err
		}
	}
	return nil
}

// prefer makes a replica the first one to ask.
func (c *ControlPlane) prefer(r *Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.replicas, r); i > 0 {
		c.replicas = slices.Insert(slices.Delete(c.replicas, i, i+1), 0, r)
	}
}

// Revision returns the revision that --revision chooses; empty: none.
func (c *ControlPlane) Revision() string { return c.revision }

// GetProxy reads a page about one proxy, named by node id, name, or as ResolveProxy does. The path is prefix, the name, and rest. It asks each replica
// until one knows the proxy. If none does, the error suggests the nearest name.
func (c *ControlPlane) GetProxy(ctx context.Context, prefix, proxy, rest string, answer any) error {
	proxy, err := c.ResolveProxy(ctx, proxy)
	if err != nil {
		return err
	}
	path := prefix + url.PathEscape(proxy) + rest
	err = c.try(ctx, elsewhere, func(r *Replica) error { return r.Get(ctx, path, answer) })
	return c.explainProxy(ctx, proxy, err)
}

// ProxyText reads a page about one proxy unchanged. It asks each replica until one knows the proxy. If none does, the error
// suggests the nearest name.
func (c *ControlPlane) ProxyText(ctx context.Context, proxy, rest string) ([]byte, error) {
	proxy, err := c.ResolveProxy(ctx, proxy)
	if err != nil {
		return nil, err
	}
	text, err := c.Text(ctx, "/debug/proxies/"+url.PathEscape(proxy)+rest)
	return text, c.explainProxy(ctx, proxy, err)
}

// ExplainPage completes the error of one of istiod's pages, whose query may name a proxy. Their answers are texts for programs.
func (c *ControlPlane) ExplainPage(ctx context.Context, query string, err error) error {
	var absent answerError
	values, _ := url.ParseQuery(query)
	proxy := PodName(values.Get("proxyID"))
	if proxy == "" || !IsNotFound(err) || !errors.As(err, &absent) {
		return err
	}
	absent.UserError = &terminal.UserError{What: fmt.Sprintf("proxy %q is not connected", proxy), Where: absent.Where,
		Next: "see 'moonsail proxies' for connected proxies"}
	return c.explainProxy(ctx, proxy, absent)
}

// mostElsewhere bounds the namespaces that an error suggests.
const mostElsewhere = 3

// explainProxy completes the error of a page about one proxy.
func (c *ControlPlane) explainProxy(ctx context.Context, proxy string, err error) error {
	var absent answerError
	if !IsNotFound(err) || !errors.As(err, &absent) {
		return err
	}
	var list debug.ProxyList
	if c.Get(ctx, "/debug/proxies", &list) != nil {
		return err
	}
	var names, elsewhere []string
	name, _, _ := strings.Cut(proxy, ".")
	for i := range list.Disconnected {
		p := &list.Disconnected[i]
		if proxy == p.ID || proxy == p.Name || proxy == p.Name+"."+p.Namespace {
			absent.UserError = &terminal.UserError{What: fmt.Sprintf("proxy %q is disconnected, since %s", proxy, p.DisconnectedSince.Local().Format("15:04:05")),
				Where: absent.Where, Next: fmt.Sprintf("see 'moonsail proxies %s.%s'; it may be stuck, or unable to reach the control plane", p.Name, p.Namespace)}
			return absent
		}
	}
	for i := range list.Proxies {
		p := &list.Proxies[i]
		names = append(names, p.Name, p.Name+"."+p.Namespace)
		if p.Name == name {
			elsewhere = append(elsewhere, strconv.Quote(p.Name+"."+p.Namespace))
		}
	}
	copied := *absent.UserError
	hint := spelling.DidYouMean(proxy, names)
	if n := len(elsewhere); n > 0 && n <= mostElsewhere { // the same name in another namespace is nearer than another name
		hint = fmt.Sprintf("; did you mean %s?", strings.Join(elsewhere, " or "))
	}
	copied.What += hint
	absent.UserError = &copied
	return absent
}

// ProxyNames completes the first arguments of a command with the names of proxies, also of those that have disconnected: commands
// explain that.
func (c *ControlPlane) ProxyNames(arguments int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var list debug.ProxyList
		if len(args) >= arguments || c.Get(cmd.Context(), "/debug/proxies", &list) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, p := range append(list.Proxies, list.Disconnected...) {
			names = append(names, p.Name+"."+p.Namespace)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// Package client is what commands share to reach what they ask about: the debug pages of a control plane
// (ControlPlane), the API server of a cluster (Cluster), objects by name (Object), and files of YAML.
//
// Each type has the flags that configure it and turns failures into errors that name the flag and the next step.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/terminal"
)

// ControlPlane is a client of the debug pages of a running control plane.
type ControlPlane struct {
	Address string // host:port or a URL

	tokenFile, caFile, certFile, keyFile string
	http                                 http.Client
	local                                bool // ask only this control plane, not its peers

	mu sync.Mutex // guards others
	// others is the number of control planes that the last answer leaves out; empty: none.
	others string
}

const (
	// DefaultAddress is where a control plane serves its debug pages.
	DefaultAddress = "127.0.0.1:15014"
	// Timeout bounds a request that Get makes.
	Timeout   = 10 * time.Second
	maxAnswer = 256 << 20 // bytes
)

// AddFlags adds --address and the flags for credentials to cmd. Call it after RunE is set: it adds a note to stderr when an answer
// leaves out other control planes.
func (c *ControlPlane) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.Address, "address", DefaultAddress, "`ADDRESS` of the control plane's --http-addr, as host:port or a URL")
	terminal.EnvFlag(cmd, "address", "MOONSAIL_ADDRESS")
	c.addCredentials(cmd)
	terminal.Group(cmd, "Connection to a control plane", "address", "token-file", "ca-file", "cert-file", "key-file")
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			defer c.printOthers(cmd.ErrOrStderr())
			return run(cmd, args)
		}
	}
}

// AddLocalFlag adds --local to cmd. Commands with it build their paths with Scoped.
func (c *ControlPlane) AddLocalFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.local, "local", false, "report only the proxies of the control plane at --address, not those of its peers")
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

func (c *ControlPlane) printOthers(out io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others != "" {
		fmt.Fprintf(out, "note: this covers only the proxies of the control plane at %s; %s more serve this mesh: ask them with --address\n", c.Address, c.others)
	}
}

func (c *ControlPlane) noteOthers(others string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others = others
}

// Get reads the JSON of a debug page into answer.
func (c *ControlPlane) Get(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	resp, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	c.noteOthers(resp.Header.Get(debug.HeaderOthers))
	if resp.StatusCode != http.StatusOK {
		return refused(c.url(path), resp)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer); err != nil {
		return &terminal.UserError{What: "invalid answer", Where: c.url(path), Err: err,
			Next: "check that --address is a Moonsail control plane of this version (moonsail version)"}
	}
	return nil
}

// Text reads a page unchanged. Only ctx bounds the time.
func (c *ControlPlane) Text(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, refused(c.url(path), resp)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
}

// open requests a page. The caller closes the body.
func (c *ControlPlane) open(ctx context.Context, path string) (*http.Response, error) {
	page := c.url(path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, terminal.UsageError{Err: fmt.Errorf("--address %q: invalid address: %w", c.Address, err)}
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(page, err)
	}
	return resp, nil
}

func (c *ControlPlane) url(path string) string {
	if strings.Contains(c.Address, "://") {
		return strings.TrimSuffix(c.Address, "/") + path
	}
	return "http://" + c.Address + path
}

func unreachable(page string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err // without the method and address: Where has them
	}
	return &terminal.UserError{What: "no control plane answers", Where: page, Err: err,
		Next: "start one (see 'moonsail serve --help'), or set --address"}
}

// refused returns the error for an answer that is not 200.
func refused(page string, resp *http.Response) error {
	var f debug.Failure
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&f); err != nil || f.Error == "" {
		f = debug.Failure{Error: "the control plane answered " + resp.Status, Next: "check that --address is Moonsail's --http-addr"}
	}
	return answerError{&terminal.UserError{What: f.Error, Where: page, Next: f.Next}, resp.StatusCode}
}

// answerError is an answer that is not 200.
type answerError struct {
	*terminal.UserError
	status int
}

// Unwrap returns the error that users see.
func (e answerError) Unwrap() error { return e.UserError }

// RefusedAsWrong reports whether the control plane could not parse the request, for example its URL.
func (e answerError) RefusedAsWrong() bool {
	return e.status == http.StatusBadRequest && e.Next == ""
}

// IsNotFound reports whether the control plane answered 404.
func IsNotFound(err error) bool {
	var answer answerError
	return errors.As(err, &answer) && answer.status == http.StatusNotFound
}

// PodName accepts kubectl's and istioctl's form of a proxy's name, too: pod/web-1.shop.
func PodName(name string) string {
	kind, pod, ok := strings.Cut(name, "/")
	if k := strings.ToLower(kind); ok && (k == "pod" || k == "pods" || k == "po") {
		return pod
	}
	return name
}

// GetProxy reads a page about one proxy, named by node id or name. The path is prefix, the name, and rest. If no such proxy
// exists, the error suggests the nearest name.
func (c *ControlPlane) GetProxy(ctx context.Context, prefix, proxy, rest string, answer any) error {
	proxy = PodName(proxy)
	err := c.Get(ctx, prefix+url.PathEscape(proxy)+rest, answer)
	var absent answerError
	if !IsNotFound(err) || !errors.As(err, &absent) {
		return err
	}
	var list debug.ProxyList
	if c.Get(ctx, "/debug/proxies", &list) != nil {
		return err
	}
	var names []string
	for i := range list.Proxies {
		p := &list.Proxies[i]
		names = append(names, p.Name, p.Name+"."+p.Namespace)
	}
	absent.What += spelling.DidYouMean(proxy, names)
	return absent
}

// ProxyNames completes the first arguments of a command with the names of connected proxies.
func (c *ControlPlane) ProxyNames(arguments int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var list debug.ProxyList
		if len(args) >= arguments || c.Get(cmd.Context(), "/debug/proxies?local", &list) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, p := range list.Proxies {
			names = append(names, p.Name+"."+p.Namespace)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

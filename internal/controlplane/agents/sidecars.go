// Package agents asks the agents of connected proxies what their Envoys have and use. The ACK of a change
// only means that Envoy accepted it.
package agents

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Proxies finds connected proxies. *server.Server implements it.
type Proxies interface {
	Proxy(id string) (server.ProxyState, bool)
}

// Client asks agents. Its methods may be called at any time, by many goroutines.
type Client struct {
	// Read-only.
	Proxies Proxies
	Explain *explain.Explainer
	// TokenFile has the token for agents on other machines; "": none is sent.
	TokenFile string

	http  *http.Client
	slots chan struct{} // a slot for each request in progress
}

// Bounds.
const (
	maxAsking   = 8 // concurrent requests
	dialTimeout = 2 * time.Second
	maxObjects  = 64 // resources in one request
)

// New returns a client.
func New(p Proxies, x *explain.Explainer, tokenFile string) *Client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	// No proxy from the environment and no redirects: the target is an address.
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	return &Client{Proxies: p, Explain: x, TokenFile: tokenFile, slots: make(chan struct{}, maxAsking),
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Pages are the pages of agents, by their names here.
var Pages = map[string]string{
	"in-use": inspect.PathInUse, "config_dump": inspect.PathConfigDump, "stats": inspect.PathStats, "clusters": inspect.PathClusters,
	"listeners": inspect.PathListeners, "server_info": inspect.PathServer, "logging": inspect.PathLogging, "logs": inspect.PathLogs,
	"workers": inspect.PathWorkers, "identity": inspect.PathIdentity,
}

// Get reads a page of the agent of a proxy, named by node ID or name.namespace.
func (a *Client) Get(ctx context.Context, proxy, page string, query url.Values) ([]byte, error) {
	path, ok := Pages[page]
	if !ok {
		return nil, fmt.Errorf("page %q: unknown to agents", page)
	}
	_, c, release, err := a.reach(ctx, proxy)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.Get(ctx, path, query)
}

// Metrics reads the metrics of a proxy whose names in Envoy match a regular expression.
func (a *Client) Metrics(ctx context.Context, proxy, matching string) ([]byte, error) {
	_, c, release, err := a.reach(ctx, proxy)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.Metrics(ctx, matching)
}

// reach returns a client of a proxy's agent, and holds one of the slots until release.
func (a *Client) reach(ctx context.Context, proxy string) (p server.ProxyState, c *inspect.Client, release func(), err error) {
	p, ok := a.Proxies.Proxy(proxy)
	if !ok {
		return p, nil, nil, explain.NotConnected{Name: proxy}
	}
	if c, err = a.client(&p); err != nil {
		return p, nil, nil, err
	}
	release, err = a.begin(ctx)
	return p, c, release, err
}

func (a *Client) begin(ctx context.Context) (release func(), err error) {
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *Client) client(p *server.ProxyState) (*inspect.Client, error) {
	address, err := addressOf(p)
	if err != nil {
		return nil, err
	}
	c := &inspect.Client{Address: address, HTTP: *a.http}
	if a.TokenFile != "" {
		text, err := os.ReadFile(a.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--agent-token-file: %w", err)
		}
		first, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
		c.Token = string(bytes.TrimSpace(first))
	}
	return c, nil
}

// addressOf returns the address of a proxy's agent, which the proxy reports. It counts only if the proxy's
// stream comes from that address, or both are on this machine. Otherwise a proxy could have the control
// plane send requests, or a token, to others.
func addressOf(p *server.ProxyState) (string, error) {
	if p.Proxy == nil || p.Proxy.StatusPort == 0 || len(p.Proxy.IPs) == 0 {
		return "", fmt.Errorf("proxy %s.%s: unknown address of its agent: run its Envoy with 'moonsail agent' of this version", p.Name, p.Namespace)
	}
	peer := peeraddr.IP(p.Peer)
	for _, text := range p.Proxy.IPs {
		ip, err := netip.ParseAddr(text)
		if ip = ip.Unmap(); err == nil && (ip == peer || ip.IsLoopback() && peer.IsLoopback()) {
			return net.JoinHostPort(ip.String(), strconv.Itoa(int(p.Proxy.StatusPort))), nil
		}
	}
	return "", fmt.Errorf("proxy %s.%s: it reports the address %s, but its stream comes from %s, so its agent is not asked", p.Name, p.Namespace, p.Proxy.IPs[0], p.Peer)
}

// Use is whether an Envoy uses what a revision changed.
type Use struct {
	Proxy string `json:"proxy"` // name.namespace
	InUse bool   `json:"inUse"`
	// Asked are the clusters and listeners that decide it. Other resources of a revision (endpoints,
	// routes) are in use with their ACK.
	Asked []inspect.Resource `json:"asked,omitempty"`
	Why   []string           `json:"why,omitempty"`   // states of what is not in use
	Error string             `json:"error,omitempty"` // why the answer is unknown
}

// InUse asks the agent of a proxy whether its Envoy uses what a revision changed.
func (a *Client) InUse(ctx context.Context, proxy string, rev model.Revision) (*Use, error) {
	want, err := a.intended(proxy, rev)
	if err != nil {
		return nil, err
	}
	p, c, release, err := a.reach(ctx, proxy)
	if err != nil {
		return nil, err
	}
	defer release()
	var asked []inspect.Question
	for i := range want {
		asked = append(asked, inspect.Question{Type: want[i].Type, Name: want[i].Name})
	}
	got, err := c.InUse(ctx, asked)
	if err != nil {
		return nil, err
	}
	if p.Protocol == "delta" {
		if err := a.sameContent(ctx, c, proxy, want, got); err != nil {
			return nil, err
		}
	}
	return judge(p.Name+"."+p.Namespace, p.Protocol == "delta", want, got), nil
}

// intended returns the clusters and listeners of a proxy that date from rev.
func (a *Client) intended(proxy string, rev model.Revision) ([]explain.ConfigResource, error) {
	c, err := a.Explain.Config(proxy, explain.AllSections, false)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(c.Resources, func(r explain.ConfigResource) bool {
		return r.Revision != rev || r.Type != "CDS" && r.Type != "LDS" || r.Sent == "refused"
	})
	return list[:min(len(list), maxObjects)], nil
}

// sameContent sets the wanted version of listeners whose content Envoy has. If only filter chains change,
// Envoy (1.40) updates a listener in place and still reports its old version.
func (a *Client) sameContent(ctx context.Context, c *inspect.Client, proxy string, want []explain.ConfigResource, got *inspect.InUse) error {
	stale := others(want, got)
	if len(stale) == 0 {
		return nil
	}
	var names []string
	for q := range stale {
		names = append(names, regexp.QuoteMeta(q.Name))
	}
	text, err := c.Get(ctx, inspect.PathConfigDump, url.Values{"mask": {"dynamic_listeners"}, "name_regex": {"^(" + strings.Join(names, "|") + ")$"}})
	if err != nil {
		return err
	}
	actual, err := explain.ParseDump(text)
	if err != nil {
		return err
	}
	full, err := a.Explain.Config(proxy, listenersSection, true)
	if err != nil {
		return err
	}
	for i := range full.Resources {
		r := &full.Resources[i]
		has := stale[inspect.Question{Type: r.Type, Name: r.Name}]
		if has == nil {
			continue
		}
		if v, err := actual.Compare(r); err == nil && v.State == explain.Same {
			has.Version = r.Version
		}
	}
	return nil
}

// listenersSection is the section of listeners.
const listenersSection = "listeners"

// others returns the listeners in use for which Envoy reports another version than the wanted one.
func others(want []explain.ConfigResource, got *inspect.InUse) map[inspect.Question]*inspect.Resource {
	out := map[inspect.Question]*inspect.Resource{}
	for i := range got.Resources {
		r := &got.Resources[i]
		if r.Type == "LDS" && r.State == inspect.Active && !slices.ContainsFunc(want, func(w explain.ConfigResource) bool {
			return w.Type == r.Type && w.Name == r.Name && w.Version == r.Version
		}) {
			out[inspect.Question{Type: r.Type, Name: r.Name}] = r
		}
	}
	return out
}

// judge compares the wanted resources with an agent's answer. Resources have versions only on delta
// streams.
func judge(proxy string, versions bool, want []explain.ConfigResource, got *inspect.InUse) *Use {
	u := &Use{Proxy: proxy, Asked: got.Resources}
	has := map[inspect.Question]*inspect.Resource{}
	for i := range got.Resources {
		r := &got.Resources[i]
		has[inspect.Question{Type: r.Type, Name: r.Name}] = r
	}
	for i := range want {
		w := &want[i]
		switch r := has[inspect.Question{Type: w.Type, Name: w.Name}]; {
		case r == nil || r.State == inspect.Missing:
			u.Why = append(u.Why, fmt.Sprintf("%s %s is not in Envoy", w.Type, w.Name))
		case r.State == inspect.Warming && (!versions || r.Warming == w.Version):
			u.Why = append(u.Why, fmt.Sprintf("%s %s is warming", w.Type, w.Name))
		case versions && r.Version != w.Version:
			u.Why = append(u.Why, fmt.Sprintf("%s %s is in use in another form", w.Type, w.Name))
		}
	}
	if got.State != "LIVE" {
		u.Why = append(u.Why, "Envoy is "+got.State)
	}
	u.InUse = len(u.Why) == 0
	return u
}

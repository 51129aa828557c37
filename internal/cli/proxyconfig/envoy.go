package proxyconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// actualInTime is actual within --timeout. An Envoy that does not answer in time is as one that is not asked, and out is marked late.
func (f *flags) actualInTime(ctx context.Context, out *comparedConfig) (*explain.Actual, error) {
	inTime, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	actual, err := f.actual(inTime, out)
	if actual == nil && f.admin != noAdmin && ctx.Err() == nil && errors.Is(inTime.Err(), context.DeadlineExceeded) {
		out.late, out.Unasked = true, fmt.Sprintf("no answer within %s", f.timeout)
		return nil, nil
	}
	return actual, err
}

// actual returns the configuration of the proxy's Envoy; nil if it is not asked.
func (f *flags) actual(ctx context.Context, out *comparedConfig) (*explain.Actual, error) {
	text, err := f.dumped(ctx, out, url.Values{configdump.Query: {""}}, "set --admin to its admin interface, or leave Envoy out with --admin none")
	if text == nil || err != nil {
		return nil, err
	}
	return explain.ParseDump(text)
}

// dumped returns the config dump of the proxy's Envoy: from --admin, else from its agent through the
// control plane, else from port 15000 of a loopback address. It is nil if Envoy is not asked. next is the advice if Envoy does not answer.
func (f *flags) dumped(ctx context.Context, out *comparedConfig, query url.Values, next string) (json.RawMessage, error) {
	if f.admin == noAdmin {
		return nil, nil
	}
	direct := f.adminOf(out.ProxyConfig)
	var dump json.RawMessage
	if f.byAgent(ctx, out, "config_dump?"+query.Encode(), &dump) {
		return dump, nil
	}
	if direct == "" {
		return nil, nil
	}
	dump, err := askEnvoy(ctx, direct, query)
	if err != nil {
		return nil, unreachable(direct, err, next)
	}
	out.Admin, out.Unasked = direct, ""
	return dump, nil
}

// byAgent asks a proxy's agent for a page, through the control plane, unless --admin is set. It records in out
// who answered, or why nothing did.
func (f *flags) byAgent(ctx context.Context, out *comparedConfig, page string, answer any) bool {
	if f.admin != "" || out.Agent == "" {
		return false
	}
	if err := f.client.Get(ctx, "/debug/proxies/"+url.PathEscape(out.ID)+"/envoy/"+page, answer); err != nil {
		out.Unasked = err.Error()
		return false
	}
	out.Admin = "agent at " + out.Agent
	return true
}

// find asks the control plane for a proxy. With --admin that is not necessary.
func (f *flags) find(ctx context.Context, proxy string) (*comparedConfig, error) {
	c := &comparedConfig{ProxyConfig: &explain.ProxyConfig{}}
	if f.admin != "" && f.admin != noAdmin {
		return c, nil
	}
	return c, f.client.GetProxy(ctx, "/debug/proxies/", proxy, "/config/secrets", c.ProxyConfig)
}

// unreached returns the error for a proxy without a known way to its Envoy.
func (f *flags) unreached(proxy string, c *comparedConfig) error {
	why := errors.New("its address is not on this machine")
	switch {
	case f.admin == noAdmin:
		why = errors.New("--admin is none")
	case c.Unasked != "":
		why = errors.New(c.Unasked)
	}
	return &terminal.UserError{What: "cannot ask the proxy's Envoy", Where: proxy, Err: why,
		Next: "forward its port 15000, and set --admin to it (see 'moonsail proxy-config --help')"}
}

// adminOf returns the address of the admin interface of the proxy's Envoy; "" if it is unknown.
func (f *flags) adminOf(c *explain.ProxyConfig) string {
	switch f.admin {
	case noAdmin:
		return ""
	case "":
		if len(c.IPs) == 0 {
			return ""
		}
		if a, err := netip.ParseAddr(c.IPs[0]); err != nil || !a.IsLoopback() {
			return ""
		}
		return net.JoinHostPort(c.IPs[0], fmt.Sprint(agent.DefaultAdminPort))
	}
	return f.admin
}

// askEnvoy reads a config dump at an admin interface.
func askEnvoy(ctx context.Context, address string, query url.Values) (json.RawMessage, error) {
	admin := envoy.NewAdmin(address)
	defer admin.Close()
	return admin.ConfigDump(ctx, query)
}

// unreachable returns the error for an Envoy that does not answer.
func unreachable(address string, err error, next string) error {
	var usage terminal.UsageError
	if errors.Is(err, context.Canceled) || errors.As(err, &usage) {
		return err
	}
	return &terminal.UserError{What: "cannot ask the proxy's Envoy", Where: address, Err: err, Next: next}
}

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/terminal"
)

// actual asks the proxy's Envoy what it has; nil: it is not to be asked.
func (f *proxyConfigFlags) actual(ctx context.Context, out *comparedConfig) (*explain.Actual, error) {
	text, err := f.dumped(ctx, out, url.Values{explain.DumpQuery: {""}}, "say where its admin interface is with --admin, or leave Envoy out with --admin none")
	if text == nil || err != nil {
		return nil, err
	}
	return explain.ParseDump(text)
}

// dumped is the config dump of the proxy's Envoy, asked at --admin, or else of its agent, by way of the
// control plane, or else at port 15000 of a loopback address. Nil: it is not to be asked; next is what to do where it does not answer.
func (f *proxyConfigFlags) dumped(ctx context.Context, out *comparedConfig, query url.Values, next string) (json.RawMessage, error) {
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
		return nil, f.unasked(direct, err, next)
	}
	out.Admin, out.Unasked = direct, ""
	return dump, nil
}

// byAgent asks a proxy's agent for a page, by way of the control plane, unless --admin says another way. out gets whom that was,
// or why it was not to be had.
func (f *proxyConfigFlags) byAgent(ctx context.Context, out *comparedConfig, page string, answer any) bool {
	if f.admin != "" || out.Agent == "" {
		return false
	}
	if err := f.client.get(ctx, "/debug/proxies/"+url.PathEscape(out.ID)+"/envoy/"+page, answer); err != nil {
		out.Unasked = err.Error()
		return false
	}
	out.Admin = "agent at " + out.Agent
	return true
}

// printSecrets tells of the certificates that Envoy has.
func printSecrets(w io.Writer, s terminal.Style, config *comparedConfig) error {
	list := config.Secrets
	if len(list) == 0 {
		return nil
	}
	t := terminal.NewTable("SECRET IN ENVOY", "STATE", "KIND", "ID", "VALID UNTIL", "SERIAL", "ISSUER")
	for i := range list {
		one := &list[i]
		if len(one.Certificates) == 0 {
			t.Row(one.Name, one.State, one.Kind)
		}
		for j := range one.Certificates {
			c := &one.Certificates[j]
			id := strings.Join(c.IDs, ",")
			if id == "" {
				id = c.Subject
			}
			t.Row(one.Name, one.State, one.Kind, id, validity(s, c, config.Now), c.Serial, c.Issuer)
		}
	}
	return t.Write(w)
}

func validity(s terminal.Style, c *explain.Certificate, now time.Time) string {
	text := c.NotAfter.Local().Format(time.DateTime)
	switch {
	case now.After(c.NotAfter):
		return s.Bad(text + ", expired")
	case now.Before(c.NotBefore):
		return s.Bad(fmt.Sprintf("%s, not before %s", text, c.NotBefore.Local().Format(time.DateTime)))
	}
	return s.Good(fmt.Sprintf("%s, in %s", text, roughly(c.NotAfter.Sub(now))))
}

// roughly is a time to people: in days where it is long.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", d/day)
}

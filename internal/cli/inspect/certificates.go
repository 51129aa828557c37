package inspect

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/terminal"
)

// proxyCertificate is the answer of one proxy's agent.
type proxyCertificate struct {
	Proxy    string    `json:"proxy"`
	ID       string    `json:"id,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	Issuer   string    `json:"issuer,omitempty"`
	From     string    `json:"from,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
	Problem  string    `json:"problem,omitempty"` // why it is not renewed
	Error    string    `json:"error,omitempty"`   // why the certificate is not known
}

// listCertificates asks the agents of the named proxies, or of all. An agent that does not answer has a row with the error.
func (f *proxiesFlags) listCertificates(cmd *cobra.Command, names []string) error {
	if len(names) == 0 {
		var err error
		if names, err = f.connectedNames(cmd.Context()); err != nil {
			return err
		}
	}
	out := make([]proxyCertificate, len(names))
	g, ctx := errgroup.WithContext(cmd.Context())
	g.SetLimit(askedAtOnce)
	for i, name := range names {
		g.Go(func() error {
			if err := f.client.GetProxy(ctx, "/debug/proxies/", name, "/envoy/identity", &out[i]); err != nil {
				out[i].Error = err.Error()
			}
			out[i].Proxy = name
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Zero times, of agents that do not answer, come first: they may hide anything.
	slices.SortStableFunc(out, func(a, b proxyCertificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return f.out.Print(cmd.OutOrStdout(), client.List{
		Value: map[string]any{"proxies": out},
		Names: func() (sorted []string) {
			for i := range out {
				sorted = append(sorted, out[i].Proxy)
			}
			return sorted
		},
		Table: func(w io.Writer) error { return f.printCertificates(w, out, time.Now()) },
	})
}

func (f *proxiesFlags) printCertificates(w io.Writer, list []proxyCertificate, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, f.none())
		return err
	}
	style := terminal.StyleFor(w)
	t := terminal.NewTable("PROXY", "ID", "EXPIRES IN", "VALID UNTIL", "ISSUER", "NOTE")
	for i := range list {
		c := &list[i]
		if c.NotAfter.IsZero() {
			t.Row(c.Proxy, terminal.OrDash(c.ID), "-", "-", "-", style.Warn(c.Error+c.Problem))
			continue
		}
		in := style.Good(c.NotAfter.Sub(now).Round(time.Minute).String())
		if !now.Before(c.NotAfter) {
			in = style.Bad("expired")
		}
		t.Row(c.Proxy, c.ID, in, c.NotAfter.Local().Format(time.DateTime), c.Issuer, style.Warn(c.Problem))
	}
	return t.Write(w)
}

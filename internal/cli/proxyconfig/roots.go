package proxyconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
	"github.com/moonsail/moonsail/internal/terminal"
)

// rootsFlags are the values of the flags of `moonsail proxy-config rootca-compare`.
type rootsFlags struct {
	one   flags    // for one proxy at a time
	admin []string // of both proxies, or empty
}

func newRootsCommand() *cobra.Command {
	var f rootsFlags
	cmd := &cobra.Command{
		Use:     "rootca-compare PROXY PROXY",
		Aliases: []string{"rc"},
		Short:   "Compare the root CAs of two proxies",
		Long: `Compare the root CAs with which the Envoys of two proxies verify certificates of the mesh. If they
differ, calls between the proxies may fail. They differ for a while when a root is replaced.

'moonsail proxy-config --help' describes how Envoy is asked. --admin has the addresses in the order of
the proxies: 127.0.0.1:15000,127.0.0.1:15001.

Exit status: 0 the same, 1 they differ, or one does not answer, 2 wrong usage.`,
		Example: `  # Compare two proxies
  moonsail proxy-config rootca-compare reviews-v1-1.shop ratings-1.shop

  # The same for programs
  moonsail proxy-config rootca-compare reviews-v1-1.shop ratings-1.shop -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.one.client.AddFlags(cmd)
	f.one.out.AddFlagOfOne(cmd)
	cmd.Flags().StringSliceVar(&f.admin, "admin", nil, "`ADDRESSES` of both Envoys' admin interfaces")
	cmd.ValidArgsFunction = f.one.client.ProxyNames(2)
	f.one.client.AddProxyNamespace(cmd, 2)
	return cmd
}

// comparedRoots is the result of the command.
type comparedRoots struct {
	Same    bool         `json:"same"`
	Proxies []proxyRoots `json:"proxies"` // in the order of the arguments
}

// proxyRoots has the root CAs that a proxy's Envoy trusts.
type proxyRoots struct {
	Proxy string                `json:"proxy"`
	Roots []explain.Certificate `json:"roots"`
}

func (f *rootsFlags) run(cmd *cobra.Command, proxies []string) error {
	if n := len(f.admin); n != 0 && n != len(proxies) {
		return terminal.UsageError{Err: fmt.Errorf("--admin has %d addresses: give one for each of the two proxies", n)}
	}
	var c comparedRoots
	now := time.Now()
	for i, proxy := range proxies {
		roots, err := f.roots(cmd.Context(), proxy, i)
		if err != nil {
			return err
		}
		if proxy, err = f.one.client.ResolveProxy(cmd.Context(), proxy); err != nil {
			return err
		}
		c.Proxies = append(c.Proxies, proxyRoots{Proxy: proxy, Roots: roots})
	}
	c.Same = maps.Equal(byDigest(c.Proxies[0].Roots), byDigest(c.Proxies[1].Roots))
	err := f.one.out.Print(cmd.OutOrStdout(), client.List{Value: c, Table: func(w io.Writer) error { return printRoots(w, &c, now) }})
	if err == nil && !c.Same {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return err
}

// roots returns the root CAs of the i-th proxy's Envoy.
func (f *rootsFlags) roots(ctx context.Context, proxy string, i int) ([]explain.Certificate, error) {
	if len(f.admin) > 0 {
		f.one.admin = f.admin[i]
	}
	c, err := f.one.find(ctx, proxy)
	if err != nil {
		return nil, err
	}
	dump, err := f.one.dumped(ctx, c, url.Values{"mask": {configdump.SecretsMask}}, "set --admin to its admin interface")
	if err == nil && dump == nil {
		err = f.one.unreached(proxy, c)
	}
	if err != nil {
		return nil, err
	}
	actual, err := explain.ParseDump(dump)
	if err != nil {
		return nil, err
	}
	for _, s := range actual.Secrets() {
		if s.Name == sds.RootsName && len(s.Certificates) > 0 {
			return s.Certificates, nil
		}
	}
	return nil, &terminal.UserError{What: "its Envoy has no root CA", Where: proxy, Err: errors.New("it has no certificate of the mesh"),
		Next: "give its agent --xds-plaintext=false, --ca-address or --mounted-certs; see 'moonsail proxy-config secrets'"}
}

// byDigest returns the digests of certificates, which cover all of their content.
func byDigest(list []explain.Certificate) map[string]bool {
	out := map[string]bool{}
	for i := range list {
		out[list[i].SHA256] = true
	}
	return out
}

// printRoots prints each root once, and which proxy trusts it.
func printRoots(w io.Writer, c *comparedRoots, now time.Time) error {
	s := terminal.StyleFor(w)
	a, b := &c.Proxies[0], &c.Proxies[1]
	has := [2]map[string]bool{byDigest(a.Roots), byDigest(b.Roots)}
	t := terminal.NewTable("ROOT CA", "SERIAL", "SHA-256", "VALID UNTIL", a.Proxy, b.Proxy)
	printed, common := map[string]bool{}, 0
	for _, r := range slices.Concat(a.Roots, b.Roots) {
		if printed[r.SHA256] {
			continue
		}
		printed[r.SHA256] = true
		if has[0][r.SHA256] && has[1][r.SHA256] {
			common++
		}
		t.Row(r.Subject, r.Serial, r.SHA256[:min(16, len(r.SHA256))], validity(s, &r, now), trusts(s, has[0][r.SHA256]), trusts(s, has[1][r.SHA256]))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	verdict := s.Good("both trust the same root CAs")
	if !c.Same {
		verdict = s.Bad("they trust different root CAs") + fmt.Sprintf(", with %d in common: calls between them may fail", common)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}

func trusts(s terminal.Style, yes bool) string {
	if yes {
		return s.Good("yes")
	}
	return s.Bad("no")
}

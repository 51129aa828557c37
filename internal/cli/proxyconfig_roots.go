package cli

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

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
	"github.com/moonsail/moonsail/internal/terminal"
)

// rootsFlags are those of "moonsail proxy-config rootca-compare".
type rootsFlags struct {
	one   proxyConfigFlags // for one proxy after the other
	admin []string         // of both proxies, or empty
}

// newRootsCommand is "moonsail proxy-config rootca-compare".
func newRootsCommand() *cobra.Command {
	var f rootsFlags
	cmd := &cobra.Command{
		Use:     "rootca-compare PROXY PROXY",
		Aliases: []string{"rc"},
		Short:   "Whether two proxies trust the same root CAs",
		Long: `Compares the root CAs by which the Envoys of two proxies (by name.namespace or node id) check certificates of the
mesh. Where they differ, calls between them may fail: a root that one of them lacks is that of the other's certificate,
or is not told to all yet while a root is replaced.

` + askedBy + `
forward the ports first, and name them in the order of the proxies (--admin 127.0.0.1:15000,127.0.0.1:15001).

Exit status: 0 the same, 1 they differ, or one cannot be asked, 2 wrong usage.`,
		Example: `  moonsail proxy-config rootca-compare reviews-v1-1.shop ratings-1.shop
  moonsail proxy-config rootca-compare reviews-v1-1.shop ratings-1.shop -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.one.client.addFlags(cmd)
	f.one.out.AddFlag(cmd)
	cmd.Flags().StringSliceVar(&f.admin, "admin", nil, "`ADDRESSES` of the admin interfaces of both proxies' Envoys, with a comma between them")
	cmd.ValidArgsFunction = f.one.client.proxyNames(2)
	return cmd
}

// comparedRoots is what "moonsail proxy-config rootca-compare -o json" prints.
type comparedRoots struct {
	Same    bool         `json:"same"`
	Proxies []proxyRoots `json:"proxies"` // as they were named
}

// proxyRoots are the root CAs that a proxy's Envoy trusts.
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
		c.Proxies = append(c.Proxies, proxyRoots{Proxy: proxy, Roots: roots})
	}
	c.Same = maps.Equal(byDigest(c.Proxies[0].Roots), byDigest(c.Proxies[1].Roots))
	err := f.one.out.Print(cmd.OutOrStdout(), c, func(w io.Writer) error { return printRoots(w, &c, now) })
	if err == nil && !c.Same {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return err
}

// roots asks the Envoy of the i-th proxy which it has.
func (f *rootsFlags) roots(ctx context.Context, proxy string, i int) ([]explain.Certificate, error) {
	if len(f.admin) > 0 {
		f.one.admin = f.admin[i]
	}
	c, err := f.one.find(ctx, proxy)
	if err != nil {
		return nil, err
	}
	dump, err := f.one.dumped(ctx, c, url.Values{"mask": {explain.SecretsMask}}, "say where its admin interface is with --admin")
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
		Next: "give its agent --xds-plaintext=false, --ca-address or --mounted-certs; 'moonsail proxy-config secrets' shows what there is"}
}

// byDigest tells certificates apart by all that is in them.
func byDigest(list []explain.Certificate) map[string]bool {
	out := map[string]bool{}
	for i := range list {
		out[list[i].SHA256] = true
	}
	return out
}

// printRoots lists each root once, with who trusts it.
func printRoots(w io.Writer, c *comparedRoots, now time.Time) error {
	s := terminal.StyleFor(w)
	a, b := &c.Proxies[0], &c.Proxies[1]
	has := [2]map[string]bool{byDigest(a.Roots), byDigest(b.Roots)}
	t := terminal.NewTable("ROOT CA", "SERIAL", "SHA-256", "VALID UNTIL", a.Proxy, b.Proxy)
	told, common := map[string]bool{}, 0
	for _, r := range slices.Concat(a.Roots, b.Roots) {
		if told[r.SHA256] {
			continue
		}
		told[r.SHA256] = true
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

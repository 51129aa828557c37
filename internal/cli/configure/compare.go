package configure

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// compareFlags are the values of the flags of `moonsail compare`.
type compareFlags struct {
	out       terminal.Output
	from, to  string
	html      string
	save      string
	proxies   []string
	domain    string
	root      string
	namespace string // of istiod
	revision  string
	token     string
	ca, cert  string
	key       string
	timeout   time.Duration
	cluster   client.Cluster
}

func newCompareCommand() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare [--from SOURCE] [--to SOURCE]",
		Short: "Show which calls another control plane would decide differently",
		Long: `Compare what two control planes give to the proxies of a mesh: which calls would be decided differently?
Is it safe to move from istiod to Moonsail, or from one version to another? Nothing is written.

The command makes calls for each listener, route and policy that one side has. Each call goes through
the Envoy resources of the caller's proxy and of the servers' sidecars, on both sides. It compares
decisions, never bytes: who is called, under which identity, with which timeout, retries and headers,
and what the policies of the server say.

A SOURCE is one of:
  istiod           the istiod of the cluster, through a port-forward to its port 15010 (default of --from)
  cluster          what this binary makes of the cluster's objects (default of --to)
  xds://HOST:PORT  a running control plane, istiod or Moonsail, in plain text
  xdss://HOST:PORT the same with TLS, as --ca, --cert, --key and --token-file say
  FILE or DIR      config dumps of proxies, one JSON file each: 'istioctl proxy-config all POD -o json'
                   or Envoy's /config_dump?include_eds; also gzipped
  FILE or DIR      YAML of Kubernetes and Istio objects: what this binary makes of them

The proxies are those of the dumps, else the Pods with sidecars and gateways of the YAML or cluster.

Between istiod and Moonsail, differences on purpose are marked with their reason. Exit status: 0 all
calls are decided alike, but for differences on purpose; 1 some are not; 2 the command failed.`,
		Example: `  # Is it safe to move this cluster from istiod to Moonsail?
  moonsail compare

  # The same from config dumps and the objects in a directory
  for pod in $(kubectl -n shop get pods -o name); do
    istioctl proxy-config all "$pod" -n shop -o json > dumps/"${pod#pod/}".json
  done
  moonsail compare --from dumps/ --to config/

  # Is it safe to upgrade? Compare this binary with the Moonsail that runs
  moonsail compare --from xds://127.0.0.1:15010

  # Compare two versions of istiod
  moonsail compare --from xds://istiod-1-30.istio-system:15010 --to xds://istiod-1-31.istio-system:15010

  # Write a report for others
  moonsail compare --html compare.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	return cmd
}

func (f *compareFlags) addFlags(cmd *cobra.Command) {
	f.out.AddFlag(cmd)
	mesh := model.DefaultMesh()
	fs := cmd.Flags()
	fs.StringVar(&f.from, "from", sourceIstiod, "`SOURCE` of the resources that proxies have")
	fs.StringVar(&f.to, "to", sourceCluster, "`SOURCE` of the resources that they would have")
	fs.StringVar(&f.html, "html", "", "also write the report as HTML to `FILE`")
	fs.StringVar(&f.save, "save", "", "also write the resources of --from to `DIR`, as config dumps")
	fs.StringSliceVar(&f.proxies, "proxy", nil, "compare only these proxies, as `NAME.NAMESPACE`")
	fs.StringVar(&f.domain, "domain", mesh.Domain, "DNS `DOMAIN` of the cluster")
	fs.StringVar(&f.root, "root-namespace", mesh.RootNamespace, "`NAMESPACE` of MeshConfig and of mesh-wide defaults")
	fs.StringVarP(&f.namespace, "istioNamespace", "i", mesh.RootNamespace, "`NAMESPACE` of istiod")
	fs.StringVar(&f.revision, "revision", "", "`REVISION` of istiod, if there are several; the cluster's objects are those for it")
	fs.StringVar(&f.token, "token-file", "", "`FILE` with a token for xdss://: of a service account, with audience istio-ca")
	fs.StringVar(&f.ca, "ca", "", "`FILE` with the root certificate of the control plane, for xdss://")
	fs.StringVar(&f.cert, "cert", "", "`FILE` with a client certificate for xdss://")
	fs.StringVar(&f.key, "key", "", "`FILE` with the key of --cert")
	fs.DurationVar(&f.timeout, "timeout", 10*time.Minute, "give up after this `TIME`")
	f.cluster.AddFlags(cmd)
	for _, name := range []string{"from", "to"} {
		_ = cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{sourceIstiod, sourceCluster, plainScheme, tlsScheme}, cobra.ShellCompDirectiveDefault // and files
		}) // the only error is a flag that does not exist
	}
	for _, name := range []string{"html", "token-file", "ca", "cert", "key"} {
		_ = cmd.MarkFlagFilename(name)
	}
	_ = cmd.MarkFlagDirname("save")
}

func (f *compareFlags) run(cmd *cobra.Command) error {
	if f.from == f.to {
		return terminal.UsageError{Err: fmt.Errorf("--from and --to are both %q: give two sources", f.from)}
	}
	if (f.cert == "") != (f.key == "") {
		return terminal.UsageError{Err: errors.New("--cert and --key belong together: give both")}
	}
	r, err := f.compare(cmd)
	if err == nil {
		err = f.out.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return printComparison(w, r) })
	}
	if err == nil && f.html != "" {
		err = f.writeHTML(r)
	}
	if err != nil {
		return terminal.StatusError{Err: err, Status: exitDiffFailed}
	}
	if !r.Same() {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

func (f *compareFlags) compare(cmd *cobra.Command) (*compare.Report, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "reading")
	defer progress.Done()
	s := &sides{flags: f}
	defer s.close()
	left, right, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	left.Only = f.proxies
	if f.save != "" {
		if err := saveDumps(f.save, left); err != nil {
			return nil, err
		}
	}
	progress.Update("comparing")
	r, err := compare.Run(ctx, left, right, nil)
	if unknown := (compare.UnknownProxy{}); errors.As(err, &unknown) {
		return nil, terminal.UsageError{Err: fmt.Errorf("--proxy: %w", unknown)}
	}
	if err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, s.notes...)
	if r.Proxies == 0 {
		return nil, &terminal.UserError{What: "no proxy is on both sides", Where: "--from " + f.from + " --to " + f.to,
			Next: fmt.Sprintf("give sources of one mesh: --from has %d proxies, --to has %d", len(left.Proxies), len(right.Proxies))}
	}
	slices.Sort(r.Notes)
	r.Notes = slices.Compact(r.Notes)
	return r, nil
}

func (f *compareFlags) writeHTML(r *compare.Report) error {
	file, err := os.Create(f.html)
	if err != nil {
		return &terminal.UserError{What: "cannot write the report", Where: "--html " + f.html, Err: err, Next: "name a file in a directory that exists"}
	}
	if err := compare.WriteHTML(file, r); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// saveDumps writes a config dump for each proxy.
func saveDumps(dir string, side *compare.Side) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // readable by others, as the report
		return &terminal.UserError{What: "cannot write dumps", Where: "--save " + dir, Err: err, Next: "name a directory that can be created"}
	}
	for _, p := range side.Proxies {
		file, err := os.Create(filepath.Join(dir, p.Name+".json.gz"))
		if err != nil {
			return err
		}
		z := gzip.NewWriter(file)
		if err := errors.Join(compare.WriteDump(z, p), z.Close(), file.Close()); err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return nil
}

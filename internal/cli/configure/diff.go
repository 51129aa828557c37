package configure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// clusterAt begins the name of a cluster that was read.
const clusterAt = "the cluster at "

// exitDiffFailed is the status of a diff that could not be made. Status 1 means that calls differ, or may differ.
const exitDiffFailed = 2

// diffFlags are the values of the flags of `moonsail diff`.
type diffFlags struct {
	out       terminal.Output
	change    []string
	remove    bool
	server    bool // --server-side
	calls     string
	maxCalls  int
	logs      []string // [PROXY=]FILE
	domain    string
	root      string
	namespace string
	traffic   bool
	plane     client.ControlPlane
}

// diffHelp and diffExamples are the help of `moonsail diff`.
const (
	diffHelp = `Compute what a change would do before it is applied: which proxies would be sent what, and which
calls would be decided differently. A call goes through the caller's proxy and through the sidecars
of the servers, with the configuration before and after the change. Nothing is written.

The configuration before the change is OLD, a directory or file of YAML. Without OLD the command reads
the first of these: the directory of the control plane at --address, the cluster of --kubeconfig or
kubectl's current one, the directory of the control plane on this machine. The configuration after the change is NEW, or that before with the objects of
CHANGE. With --delete the objects of CHANGE are removed.

With --server-side, the API server applies the objects of CHANGE with a dry run, as
'kubectl apply --server-side --force-conflicts' would: they have its defaults, the changes of
admission webhooks, and the fields that others own. That needs the rights to create and patch them.
Without, the objects are taken as they are written, in place of those of the cluster.

After the calls, lines with "new:" are errors and warnings of 'moonsail analyze' that the
configuration before the change does not have: they are often the reason why calls differ.

The calls are those of --calls and --access-logs. Otherwise the command tries, from each workload, a
call for each route of each service that the change may concern, and for each operation and header
condition of a changed AuthorizationPolicy. If there are more than --max-calls calls, it tries some of each
workload and some to each service. Workloads without a sidecar make calls in plain text, to services whose
sidecars would be sent something. In files, workloads are the Deployments and other owners of Pods. If the
Pods exist, as in a cluster, they are the workloads. An owner in the change gives them its labels,
annotations and service account.

With --traffic, only calls that workloads make are tried. The proxies' metrics show which services a
workload calls. The command tries the workload's calls to these services. It also tries its calls to other
services, if a route sends them to one of these, before or after the change. A control plane reads the
metrics; --address or --context chooses it. Calls that enter at gateways are all tried. If the metrics of
some proxies are missing, a note states it, and all calls of workloads without measured calls are tried.

Access logs are those of sidecars and gateways in Istio's default format, as text or JSON. The caller is
PROXY, else the Pod of a line of 'kubectl logs --prefix', else the proxy with the caller's address. Logs
lack headers, so matches of headers other than the authority are not tried.

Exit status: 0 all calls are decided alike, 1 some are decided differently, undecided or not tried, 2 the
command failed.`
	diffExamples = `  # What would this change do to the cluster?
  moonsail diff -f canary.yaml

  # The same, with the defaults and webhooks of the cluster
  moonsail diff -f canary.yaml --server-side

  # What would it do to a directory of YAML?
  moonsail diff config/ -f canary.yaml

  # Comment on a pull request
  git worktree add ../base origin/main
  moonsail diff ../base/config config -o github

  # Try certain calls only
  echo '[{from: frontend.shop, url: "http://reviews.shop:9080/reviews/7"}]' > calls.yaml
  moonsail diff config/ -f canary.yaml --calls calls.yaml

  # Try the calls that were made
  kubectl -n shop logs -l app=reviews -c istio-proxy --prefix > reviews.log
  moonsail diff -f canary.yaml --access-logs reviews.log

  # Try only calls between workloads that call each other
  moonsail diff -f canary.yaml --traffic

  # What if these objects were deleted?
  moonsail diff -f old-policy.yaml --delete`
)

func newDiffCommand() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:     "diff [OLD [NEW]] [-f CHANGE]...",
		Short:   "Show which calls a change would decide differently",
		Long:    diffHelp,
		Example: diffExamples,
		Args:    cobra.MaximumNArgs(2),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.addFlags(cmd)
	return cmd
}

func (f *diffFlags) addFlags(cmd *cobra.Command) {
	f.out.AddFlagWith(cmd, formatGitHub)
	mesh := model.DefaultMesh()
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.change, "filename", "f", nil, "`FILE` or directory with changed objects; - is standard input")
	fs.BoolVar(&f.remove, "delete", false, "remove the objects of --filename")
	fs.BoolVar(&f.server, "server-side", false, "ask the API server what the objects of --filename would be, with a dry run")
	fs.StringVar(&f.calls, "calls", "", "YAML `FILE` with a list of calls: from, url, method and headers")
	fs.IntVar(&f.maxCalls, "max-calls", preview.DefaultMaxCalls, "try at most this `NUMBER` of calls")
	fs.StringArrayVar(&f.logs, "access-logs", nil, "`[PROXY=]FILE` with access logs whose calls to try, of the proxy NAME.NAMESPACE; may be repeated")
	fs.BoolVar(&f.traffic, "traffic", false, "try only calls of workloads to services that they call")
	fs.StringVarP(&f.namespace, "namespace", "n", "default", "`NAMESPACE` of objects in files that have none")
	fs.StringVar(&f.domain, "domain", mesh.Domain, "DNS `DOMAIN` of the cluster")
	fs.StringVar(&f.root, "root-namespace", mesh.RootNamespace, "`NAMESPACE` of MeshConfig and of mesh-wide defaults")
	f.plane.WithCluster = true
	f.plane.AddFlags(cmd)
}

func (f *diffFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	r, err := f.compute(cmd, args)
	if err != nil {
		return terminal.StatusError{Err: err, Status: exitDiffFailed}
	}
	if f.out.Is(formatGitHub) {
		err = printDiffComment(cmd.OutOrStdout(), r)
	} else {
		err = f.out.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return printDiff(w, r) })
	}
	if err != nil {
		return terminal.StatusError{Err: err, Status: exitDiffFailed}
	}
	if !r.Alike() {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// check reports arguments that do not fit together.
func (f *diffFlags) check(args []string) error {
	switch {
	case len(args) == 2 && len(f.change) > 0:
		return terminal.UsageError{Err: errors.New("NEW and --filename exclude each other: give one of them")}
	case len(args) < 2 && len(f.change) == 0:
		return terminal.UsageError{Err: errors.New("no change: give -f CHANGE, or OLD and NEW")}
	case f.traffic && (f.calls != "" || len(f.logs) > 0):
		return terminal.UsageError{Err: errors.New("--traffic and --calls or --access-logs exclude each other: give one of them")}
	case f.maxCalls < 1:
		return terminal.UsageError{Err: errors.New("--max-calls is not positive: give 1 or more")}
	case f.server && (len(args) > 0 || f.remove):
		return terminal.UsageError{Err: errors.New("--server-side applies -f CHANGE to the cluster: give no OLD, and no --delete")}
	case f.server && f.plane.AddressGiven() && f.plane.Kubeconfig == "" && f.plane.Context == "":
		return terminal.UsageError{Err: errors.New("--address does not choose the cluster of --server-side: give --kubeconfig or --context, too")}
	case f.remove && len(f.change) == 0:
		return terminal.UsageError{Err: errors.New("--delete needs --filename")}
	case len(args) > 0 && !f.traffic && (f.plane.Kubeconfig != "" || f.plane.Context != ""):
		return terminal.UsageError{Err: errors.New("OLD and --kubeconfig or --context exclude each other: give one of them")}
	}
	return nil
}

func (f *diffFlags) compute(cmd *cobra.Command, args []string) (*preview.Report, error) {
	mesh := model.DefaultMesh()
	mesh.Domain, mesh.RootNamespace = f.domain, f.root
	in := preview.Input{Mesh: mesh, MaxCalls: f.maxCalls}
	var err error
	if in.Calls, err = f.readCalls(); err != nil {
		return nil, err
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "comparing")
	defer progress.Done()
	before, source, err := f.readBefore(cmd.Context(), args)
	if err != nil {
		return nil, err
	}
	after, change, err := f.readAfter(cmd, args, before)
	if err != nil {
		return nil, err
	}
	missing, err := f.unread(before, change, before.running)
	if err != nil {
		return nil, err
	}
	files := len(before.trees) > 0
	problems := f.newProblems(before, after, files)
	in.Before, in.After = before.Side, after.Side
	preview.Populate(&in.Before, &in.After, files)
	notes, err := f.addLogged(&in)
	if err == nil && f.traffic {
		in.CallsHost, notes, err = f.callsHost(cmd.Context(), &in)
	}
	if err != nil {
		return nil, err
	}
	r, err := preview.Compute(cmd.Context(), in)
	if err != nil {
		return nil, err
	}
	if f.traffic && r.Tried == 0 && len(r.Proxies) > 0 {
		notes = append(notes, "no call was tried: no workload was measured to call a service that the change concerns")
	}
	r.Notes = slices.Concat(missing, r.Notes, notes)
	r.Source, r.Problems = source, problems
	if f.out.Is(formatGitHub) {
		publish(r)
	}
	return r, nil
}

// readBefore reads the configuration before the change: OLD, the directory of a control plane, or the cluster. source describes what
// the user did not name.
func (f *diffFlags) readBefore(ctx context.Context, args []string) (s *diffSide, source string, err error) {
	if len(args) > 0 {
		s, err = f.read(nil, false, args[0])
		return s, "", err
	}
	dir, where := "", ""
	if !f.server {
		dir, where, err = f.plane.ConfigDir(ctx)
	}
	switch {
	case err != nil:
		return nil, "", err
	case dir != "":
		if s, err = f.readTree(file.Options{Decoder: f.decoder(), Bounded: true}, dir); err == nil {
			s.running = dir
		}
		return s, dir + ", the directory of " + where, err
	}
	s, source, err = f.readCluster(ctx)
	return s, clusterAt + source, err
}

// readAfter reads the configuration after the change: NEW, or that before with the changed objects, which change has; nil: NEW.
func (f *diffFlags) readAfter(cmd *cobra.Command, args []string, before *diffSide) (after *diffSide, change *file.Tree, err error) {
	if len(args) == 2 {
		after, err = f.read(nil, true, args[1])
		return after, nil, err
	}
	side, err := f.read(cmd.InOrStdin(), !f.remove, f.change...)
	if err != nil {
		return nil, nil, err
	}
	if f.server {
		if err := f.applyOnServer(cmd.Context(), side); err != nil {
			return nil, nil, err
		}
	}
	return f.apply(before, side), side.trees[0], nil
}

// addLogged adds the calls of --access-logs. Notes state what is left out.
func (f *diffFlags) addLogged(in *preview.Input) (notes []string, err error) {
	if len(f.logs) == 0 {
		return nil, nil
	}
	var log preview.AccessLog
	for _, one := range f.logs {
		writer, name, ok := strings.Cut(one, "=")
		if !ok {
			writer, name = "", one
		}
		if err := readLog(&log, name, writer); err != nil {
			return nil, err
		}
	}
	calls, unknown := log.Calls(&in.Before, &in.After)
	if len(calls) == 0 {
		return nil, &terminal.UserError{What: "no call has a known caller", Where: "--access-logs " + strings.Join(f.logs, ", "),
			Next: "give the proxy that wrote a file, as NAME.NAMESPACE=FILE"}
	}
	in.Calls = append(in.Calls, calls...)
	if unknown > 0 {
		notes = append(notes, terminal.Count(unknown, "logged call")+" left out: no proxy has the caller's name or address")
	}
	return notes, nil
}

func readLog(log *preview.AccessLog, name, writer string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := log.Read(file, writer); err != nil {
		return &terminal.UserError{What: "cannot be read", Where: name, Err: err, Next: "use Istio's default accessLogFormat, or write the calls into a file of --calls"}
	}
	return nil
}

func (f *diffFlags) decoder() config.Decoder {
	return config.Decoder{Domain: f.domain, DefaultNamespace: f.namespace, Revision: f.plane.Revision()}
}

// read reads files. With strict, an object with an error ends the command.
func (f *diffFlags) read(stdin io.Reader, strict bool, paths ...string) (*diffSide, error) {
	s, err := f.readTree(file.Options{Decoder: f.decoder(), Stdin: stdin}, paths...)
	if err != nil {
		return nil, err
	}
	for _, p := range s.problems {
		if strict && p.Severity == problem.SeverityError {
			return nil, &terminal.UserError{What: p.String(), Next: "correct it: 'moonsail analyze " + strings.Join(paths, " ") + "' reports all errors"}
		}
	}
	return s, nil
}

func (f *diffFlags) readTree(o file.Options, paths ...string) (*diffSide, error) {
	tree, err := o.Analyze(paths...)
	if err != nil {
		return nil, unreadable(paths, err)
	}
	return &diffSide{Side: preview.Side{Objects: tree.Objects, Templates: tree.Templates}, raw: tree.Raw, problems: tree.Problems, trees: []*file.Tree{tree}}, nil
}

// readCluster reads the cluster, and returns the address of its API server.
func (f *diffFlags) readCluster(ctx context.Context) (*diffSide, string, error) {
	access, known := f.plane.Default()
	if !known {
		return nil, "", terminal.UsageError{Err: errors.New("no configuration: give OLD, or --kubeconfig (not needed in a Pod), or run a control plane on this machine")}
	}
	content, address, err := readCluster(ctx, &f.plane.Cluster, access, f.domain, f.root, f.plane.Revision())
	if err != nil {
		return nil, "", err
	}
	return &diffSide{Side: preview.Side{Objects: content.Objects}, problems: content.Problems}, address, nil
}

// apply returns a configuration with the objects of a change, or without them.
func (f *diffFlags) apply(before, change *diffSide) *diffSide {
	of := map[model.Key]model.Object{}
	for _, o := range before.Objects {
		of[o.Metadata().Key] = o
	}
	templates := map[model.Key]*model.Workload{}
	for _, t := range before.Templates {
		templates[t.Key] = t
	}
	for _, o := range change.Objects {
		m := o.Metadata()
		if f.remove {
			delete(of, m.Key)
			continue
		}
		if was := of[m.Key]; was != nil {
			m.Created = was.Metadata().Created // an update does not make it younger
		}
		of[m.Key] = o
	}
	if f.remove {
		for k := range change.trees[0].Broken { // its name suffices
			delete(of, k)
		}
	}
	for _, t := range change.Templates {
		if f.remove {
			delete(templates, t.Key)
		} else {
			templates[t.Key] = t
		}
	}
	out := &diffSide{raw: maps.Clone(before.raw), trees: slices.Concat(change.trees, before.trees)}
	if out.raw == nil {
		out.raw = map[model.Key][]byte{}
	}
	for k, content := range change.raw {
		if out.raw[k] = content; f.remove {
			delete(out.raw, k)
		}
	}
	out.problems = slices.DeleteFunc(slices.Clone(before.problems), func(p problem.Problem) bool { return change.trees[0].Has(p.Object) })
	if !f.remove {
		out.problems = append(out.problems, change.problems...)
	}
	for _, k := range slices.SortedFunc(maps.Keys(of), model.Key.Compare) {
		out.Objects = append(out.Objects, of[k])
	}
	for _, k := range slices.SortedFunc(maps.Keys(templates), model.Key.Compare) {
		out.Templates = append(out.Templates, templates[k])
	}
	if f.remove {
		for _, t := range change.Templates {
			out.RemovePods(t)
		}
	}
	return out
}

// readCalls reads the file of --calls.
func (f *diffFlags) readCalls() ([]preview.Call, error) {
	if f.calls == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.calls)
	if err != nil {
		return nil, err
	}
	var calls []preview.Call
	if err := yaml.UnmarshalStrict(data, &calls); err != nil {
		return nil, &terminal.UserError{What: "not a list of calls", Where: f.calls, Err: err,
			Next: `write a list like [{from: frontend.shop, url: "http://reviews.shop:9080/"}]`}
	}
	for i, c := range calls {
		if c.From == "" || c.URL == "" {
			return nil, &terminal.UserError{What: fmt.Sprintf("call %d lacks from or url", i+1), Where: f.calls,
				Next: `write both, like {from: frontend.shop, url: "http://reviews.shop:9080/"}`}
		}
	}
	return calls, nil
}

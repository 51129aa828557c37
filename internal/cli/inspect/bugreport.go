package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/bugreport"
	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// bugReportFlags are the values of the flags of `moonsail bug-report`.
type bugReportFlags struct {
	client client.ControlPlane
	file   string

	namespace *string // of the proxies; empty: all
	sample    int
	changes   int
	cpu       time.Duration
	maxMB     int
	timeout   time.Duration
}

func newBugReportCommand() *cobra.Command {
	var f bugReportFlags
	cmd := &cobra.Command{
		Use:   "bug-report [PROXY...]",
		Short: "Collect diagnostic data of a mesh into an archive",
		Long: `Collect diagnostic data of a mesh into one archive (.tar.gz):

  control plane  version, flags, debug pages, metrics, change log, problems, profiles; the Istio objects
                 in force (configuration.yaml), what proxies refuse, and what 'moonsail doctor' finds;
                 its log, if it runs in a cluster
  proxies        intended and actual configuration, statistics and logs, of the proxies that are
                 named, or of some (with -n, of this namespace), those that are behind first
  cluster        with --kubeconfig, or if the control plane runs in a cluster: the Kubernetes objects
                 that the mesh reads

Private keys, tokens, passwords, data of Secrets, and texts that look like them, are removed.
manifest.json lists the files, the number of removals, and what is empty or could not be read. Further replicas of
the control plane have folders below control-planes/.

If a control plane or proxy does not answer, only its part is missing. If nothing can be read, or a
named proxy is unknown, the command writes no archive and fails.

Exit status: 0 written, 1 failed, 2 wrong usage, 130 interrupted: no archive is written.

Read the archive before you share it: it contains names, addresses and routes.`,
		Example: `  # Collect data of the control plane on this machine or in the cluster
  moonsail bug-report

  # Include a proxy and a CPU profile
  moonsail bug-report reviews-v1-1.shop --cpu 10s --file report.tar.gz

  # Ask an address, and include the objects of the cluster
  moonsail bug-report --kubeconfig ~/.kube/config --address https://mesh.example:15014 --token-file token`,
		RunE: f.run,
	}
	f.client.WithCluster = true
	f.client.AddFlags(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "`FILE` to write (default: moonsail-bug-report-TIME.tar.gz)")
	fs.IntVar(&f.sample, "proxies", 5, "maximum number of proxies, if none are named")
	fs.IntVar(&f.changes, "changes", 1024, "maximum number of changes")
	fs.DurationVar(&f.cpu, "cpu", 0, "duration of a CPU profile of the control plane; 0: none")
	fs.IntVar(&f.maxMB, "max-size", 256, "maximum size in MB before compression; the manifest lists what is left out")
	fs.DurationVar(&f.timeout, "timeout", 20*time.Second, "maximum time for each part")
	cmd.ValidArgsFunction = f.client.ProxyNames(maxNamedProxies)
	f.namespace = f.client.AddProxyNamespace(cmd, maxNamedProxies)
	return cmd
}

// maxNamedProxies bounds the arguments that the shell completes.
const maxNamedProxies = 64

func (f *bugReportFlags) check() error {
	switch {
	case f.sample < 0:
		return errors.New("--proxies: negative: use 0 for none")
	case f.cpu < 0:
		return errors.New("--cpu: negative: use 0 for none")
	case f.changes < 1:
		return errors.New("--changes: too small: use 1 or more")
	case f.maxMB < 1:
		return errors.New("--max-size: too small: use 1 or more")
	case f.timeout <= 0:
		return errors.New("--timeout: must be longer than 0")
	}
	return nil
}

func (f *bugReportFlags) run(cmd *cobra.Command, proxies []string) error {
	if err := f.check(); err != nil {
		return terminal.UsageError{Err: err}
	}
	now := time.Now()
	folder := "moonsail-bug-report-" + now.UTC().Format("20060102T150405Z")
	if f.file == "" {
		f.file = folder + ".tar.gz"
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "asking the control plane")
	defer progress.Done()
	if err := f.checkProxies(cmd.Context(), proxies); err != nil {
		return err
	}
	items := f.items(cmd.Context(), proxies)
	m, err := f.write(cmd.Context(), items, bugreport.Options{
		Folder: folder, MaxFile: max(1, f.maxMB/4) << 20, MaxTotal: f.maxMB << 20, Timeout: f.timeout + f.cpu, Now: now,
		Progress: func(done, all int, name string) { progress.Update(fmt.Sprintf("%d of %d: %s", done+1, all, name)) },
	})
	if err != nil {
		return err
	}
	return printReport(cmd.OutOrStdout(), f.file, m)
}

// write writes the archive to a temporary file, and renames it when it is complete.
func (f *bugReportFlags) write(ctx context.Context, items []bugreport.Item, o bugreport.Options) (*bugreport.Manifest, error) {
	out, err := os.CreateTemp(filepath.Dir(f.file), ".bug-report-*")
	if err != nil {
		return nil, &terminal.UserError{Where: "--file " + f.file, Err: err, Next: "name a file that can be written"}
	}
	defer func() { _ = os.Remove(out.Name()) }() // it was renamed if all went well
	m, err := bugreport.Write(ctx, out, items, o)
	if err == nil {
		err = ctx.Err() // an interrupted report is incomplete
	}
	if err == nil && len(m.Files)-m.Failed-m.Empty <= 1 { // only client.json
		err = &terminal.UserError{What: "nothing can be read", Err: errors.New(firstFailure(m)),
			Next: "set --address to the control plane, or --kubeconfig to the cluster"}
	}
	if err == nil {
		err = out.Sync()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(out.Name(), f.file)
	}
	return m, err
}

// firstFailure returns the error of the first part that could not be read.
func firstFailure(m *bugreport.Manifest) string {
	for i := range m.Files {
		if m.Files[i].Error != "" {
			return m.Files[i].Error
		}
	}
	return "all parts are empty"
}

func printReport(w io.Writer, file string, m *bugreport.Manifest) error {
	s := terminal.StyleFor(w)
	fmt.Fprintf(w, "%s: %s, %.1f MB before compression, %s removed\n", s.Bold(file),
		terminal.Count(len(m.Files)-m.Failed-m.Empty, "file"), float64(m.Bytes)/(1<<20), terminal.Count(m.Redacted, "secret"))
	if m.Empty > 0 {
		fmt.Fprintf(w, "  %s left out, as they are empty: see manifest.json\n", terminal.Count(m.Empty, "file"))
	}
	for _, one := range m.Files {
		switch {
		case one.Error != "":
			fmt.Fprintf(w, "  %s %s: %s\n", s.Warn("not read"), one.Name, one.Error)
		case one.Cut:
			fmt.Fprintf(w, "  %s %s: too large\n", s.Warn("cut"), one.Name)
		}
	}
	_, err := fmt.Fprintln(w, "read the archive before you share it: it contains names, addresses and routes")
	return err
}

// page returns a file with a page of the control plane.
func (f *bugReportFlags) page(name, path, about string, binary bool) bugreport.Item {
	return bugreport.Item{Name: name, About: about, Binary: binary, Read: func(ctx context.Context) ([]byte, error) { return f.client.Text(ctx, path) }}
}

// list returns a file with a page of the control plane that may have nothing.
func (f *bugReportFlags) list(name, path, about string) bugreport.Item {
	item := f.page(name, path, about, false)
	item.IsEmpty = hasNothing
	return item
}

// metaFields are fields of pages that tell nothing without the others.
var metaFields = []string{"now", "revision", "rootNamespace", "others"}

// hasNothing reports whether the lists and objects of a JSON document are empty.
func hasNothing(text []byte) bool {
	var v any
	return json.Unmarshal(text, &v) == nil && isNothing(v)
}

func isNothing(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		for k, inner := range v {
			if !slices.Contains(metaFields, k) && !isNothing(inner) {
				return false
			}
		}
		return true
	}
	return false
}

// refusal is a resource that a proxy refuses.
type refusal struct {
	Proxy string `json:"proxy"`
	Type  string `json:"type"`
	server.Held
}

// refusals lists what proxies refuse now.
func (f *bugReportFlags) refusals(ctx context.Context) ([]byte, error) {
	var list debug.ProxyList
	if err := f.client.Get(ctx, "/debug/proxies", &list); err != nil {
		return nil, err
	}
	out := []refusal{}
	for i := range list.Proxies {
		p := &list.Proxies[i]
		for _, t := range p.Types {
			for _, h := range t.Held {
				out = append(out, refusal{p.Name + "." + p.Namespace, t.Type, h})
			}
		}
	}
	return json.MarshalIndent(out, "", "  ")
}

// findings is the report of `moonsail doctor`.
func (f *bugReportFlags) findings(ctx context.Context) ([]byte, error) {
	report, err := examineReplicas(ctx, &f.client, doctor.Options{})
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(report, "", "  ")
}

// configuration is a list of the Istio objects in force, as kubectl prints it.
func (f *bugReportFlags) configuration(ctx context.Context) ([]byte, error) {
	objects := []json.RawMessage{}
	if err := f.client.Get(ctx, "/debug/configz", &objects); err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return []byte("[]"), nil
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
}

// logLines are the lines of a control plane's log in a report.
const logLines = 10_000

func logOf(r *client.Replica, name string) bugreport.Item {
	return bugreport.Item{Name: name, About: "the end of the control plane's log", Read: func(ctx context.Context) ([]byte, error) { return r.Log(ctx, logLines) }}
}

// items returns the files of a report, the most useful first. If the archive gets too large, the last ones are left out.
func (f *bugReportFlags) items(ctx context.Context, proxies []string) []bugreport.Item {
	own, err := json.MarshalIndent(version.Get(), "", "  ")
	items := []bugreport.Item{
		{Name: "client.json", About: "version of the command that wrote this", Read: func(context.Context) ([]byte, error) { return own, err }},
		f.page("version.json", "/version", "version of the control plane", false),
		f.page("flags.txt", "/debug/pprof/cmdline", "command line of the control plane", false),
		f.page("ready.json", "/ready", "readiness", false),
		f.list("problems.json", "/debug/problems", "problems of the configuration"),
		{Name: "refusals.json", About: "configuration that proxies refuse, with their messages", IsEmpty: hasNothing, Read: f.refusals},
		{Name: "doctor.json", About: "what 'moonsail doctor' finds", Read: f.findings},
		{Name: "configuration.yaml", About: "the Istio objects in force", YAML: true, IsEmpty: hasNothing, Read: f.configuration},
		f.page("proxies.json", "/debug/proxies", "connected proxies", false),
		f.page("changes.json", fmt.Sprintf("/debug/changes?n=%d", f.changes), "the change log, newest first", false),
		f.page("stale.json", "/debug/stale", "proxies that hold removed endpoints", false),
		f.list("dependencies.json", "/debug/dependencies", "which services workloads call, with errors"),
		f.page("metrics.txt", "/metrics", "metrics", false),
		f.page("scopes.json", "/debug/scopes", "proxy groups", false),
		f.page("store.json", "/debug/store", "number of objects", false),
		f.page("profiles/goroutines.txt", "/debug/pprof/goroutine?debug=2", "stacks of goroutines", false),
		f.page("profiles/heap.pb.gz", "/debug/pprof/heap", "memory in use", true),
		f.page("profiles/allocs.pb.gz", "/debug/pprof/allocs", "memory allocated so far", true),
		f.page("profiles/mutex.pb.gz", "/debug/pprof/mutex", "lock contention (empty without --profile-mutex)", true),
		f.page("profiles/block.pb.gz", "/debug/pprof/block", "blocking events (empty without --profile-block)", true),
	}
	if f.cpu > 0 {
		items = append(items, f.page("profiles/cpu.pb.gz", fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(f.cpu.Seconds()))), "CPU time", true))
	}
	for _, p := range f.chooseProxies(ctx, proxies) {
		items = append(items, f.proxyItems(p)...)
	}
	items = append(items, f.replicaItems(ctx)...)
	for _, k := range model.Kinds {
		items = append(items, f.list("store/"+string(k)+".json", "/debug/store/"+string(k), "objects of this kind in the control plane"))
	}
	return append(items, f.clusterItems(ctx)...)
}

// replicaItems returns the files of the replicas after the first one.
func (f *bugReportFlags) replicaItems(ctx context.Context) (items []bugreport.Item) {
	replicas, err := f.client.Replicas(ctx)
	if err != nil {
		return nil // the other files have the error
	}
	if r := replicas[0]; r.HasLog() {
		items = append(items, logOf(r, "log.txt"))
	}
	for _, r := range replicas[1:] {
		if r.HasLog() {
			items = append(items, logOf(r, "control-planes/"+r.Name+"/log.txt"))
		}
		for _, p := range []struct {
			name, path, about string
			binary            bool
		}{
			{"version.json", "/version", "version of this replica", false},
			{"ready.json", "/ready", "readiness", false},
			{"proxies.json", "/debug/proxies?local", "its proxies", false},
			{"changes.json", fmt.Sprintf("/debug/changes?n=%d", f.changes), "its change log, newest first", false},
			{"metrics.txt", "/metrics", "metrics", false},
			{"goroutines.txt", "/debug/pprof/goroutine?debug=2", "stacks of goroutines", false},
			{"heap.pb.gz", "/debug/pprof/heap", "memory in use", true},
		} {
			items = append(items, bugreport.Item{Name: "control-planes/" + r.Name + "/" + p.name, About: p.about, Binary: p.binary,
				Read: func(ctx context.Context) ([]byte, error) { return r.Text(ctx, p.path) }})
		}
	}
	return items
}

// clusterItems returns the files with objects of the cluster, sorted by name, or one with the error.
func (f *bugReportFlags) clusterItems(ctx context.Context) []bugreport.Item {
	access, ok := f.client.ClusterOf()
	if !ok {
		return nil
	}
	failed := func(err error) []bugreport.Item {
		return []bugreport.Item{{Name: "kubernetes", About: "objects of the cluster", Read: func(context.Context) ([]byte, error) { return nil, err }}}
	}
	api, err := kube.Connect(access)
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	lists, err := api.Listings(ctx, model.DefaultMesh().RootNamespace, "") // revisions have ConfigMaps of other names
	if err != nil {
		return failed(err)
	}
	about := fmt.Sprintf("objects of this kind in the API server, at most %d", kube.MaxListed)
	var items []bugreport.Item
	for _, l := range lists {
		items = append(items, bugreport.Item{Name: "kubernetes/" + l.Kind + ".json", About: about, Read: l.Read})
	}
	slices.SortFunc(items, func(a, b bugreport.Item) int { return cmp.Compare(a.Name, b.Name) })
	return items
}

// checkProxies fails if a named proxy is unknown: the report would lack its subject. If the control plane does not answer,
// only its part of the report is missing.
func (f *bugReportFlags) checkProxies(ctx context.Context, named []string) error {
	for i, name := range named {
		name, err := f.client.ResolveProxy(ctx, name)
		if err != nil && !client.IsUnreachable(err) {
			return err
		}
		named[i] = cmp.Or(name, named[i])
		if err := f.client.GetProxy(ctx, "/debug/proxies/", named[i], "", &json.RawMessage{}); client.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// chooseProxies returns the proxies to report in full: the named ones, or some, those with problems first.
func (f *bugReportFlags) chooseProxies(ctx context.Context, named []string) []string {
	if len(named) > 0 {
		return named
	}
	var list debug.ProxyList
	if f.sample == 0 || f.client.Get(ctx, "/debug/proxies?local", &list) != nil {
		return nil // the file of this page has the error
	}
	slices.SortStableFunc(list.Proxies, func(a, b server.ProxyState) int { return cmp.Compare(severity(&b), severity(&a)) })
	var out []string
	for _, p := range list.Proxies {
		if name := p.Name + "." + p.Namespace; !slices.Contains(out, name) && len(out) < f.sample && cmp.Or(*f.namespace, p.Namespace) == p.Namespace {
			out = append(out, name)
		}
	}
	return out
}

// severity orders proxies by their problems.
func severity(p *server.ProxyState) int {
	n := min(p.Pending, 1)
	for _, t := range p.Types {
		n += 2 * min(len(t.Held), 1)
	}
	return n
}

// proxyItems returns the files of one proxy.
func (f *bugReportFlags) proxyItems(name string) []bugreport.Item {
	folder := "proxies/" + strings.ReplaceAll(path.Base(name), "~", "_") + "/"
	at := "/debug/proxies/" + url.PathEscape(name)
	return slices.Concat([]bugreport.Item{
		f.page(folder+"state.json", at, "state of its stream", false),
		f.page(folder+"intended.json", at+"/config/all?full", "its intended configuration and what was sent", false),
	}, untilTimeout([]bugreport.Item{
		f.page(folder+"in-use.json", at+"/envoy/in-use", "what its Envoy uses", false),
		f.page(folder+"config_dump.json", at+"/envoy/config_dump?"+configdump.Query, "its Envoy's configuration", false),
		f.page(folder+"server_info.json", at+"/envoy/server_info", "its Envoy's version and state", false),
		f.page(folder+"clusters.json", at+"/envoy/clusters", "its Envoy's clusters and hosts", false),
		f.page(folder+"listeners.json", at+"/envoy/listeners", "its Envoy's listeners", false),
		f.page(folder+"stats.txt", at+"/envoy/stats?usedonly", "its Envoy's statistics", false),
	}), []bugreport.Item{
		f.page(folder+"logs.txt", at+"/envoy/logs", "the end of the log of its agent and Envoy", false), // the agent has them
	})
}

// untilTimeout returns items of one Envoy that are not read after one of them has got no answer in time. Items are read one
// after another.
func untilTimeout(items []bugreport.Item) []bugreport.Item {
	var slow error
	for i := range items {
		name, read := items[i].Name, items[i].Read
		items[i].Read = func(ctx context.Context) ([]byte, error) {
			if slow != nil {
				return nil, slow
			}
			text, err := read(ctx)
			if client.IsTimeout(err) {
				slow = fmt.Errorf("left out: its Envoy did not answer in time for %s", path.Base(name))
			}
			return text, err
		}
	}
	return items
}

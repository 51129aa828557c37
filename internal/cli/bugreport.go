package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/diagnose/bugreport"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// bugReportFlags are those of "moonsail bug-report".
type bugReportFlags struct {
	client  debugClient
	kube    kubeFlags
	file    string
	sample  int
	changes int
	cpu     time.Duration
	maxMB   int
	timeout time.Duration
}

// NewBugReportCommand is "moonsail bug-report".
func NewBugReportCommand() *cobra.Command {
	var f bugReportFlags
	cmd := &cobra.Command{
		Use:   "bug-report [PROXY...]",
		Short: "Put what there is to know about a mesh into one archive, without secrets",
		Long: `Asks the control plane for everything that helps to find out what is wrong, and writes one
archive (.tar.gz): version and flags, the debug page of each stage, metrics, the change log,
problems, proxies, profiles of goroutines, memory, locks and (with --cpu) CPU time; of the
proxies that are named, or of a few of those that lack something, what they are to have and
what their Envoys have, with statistics and logs; with --kubeconfig the Kubernetes objects
that the mesh reads.

Private keys, tokens, passwords, data of Secrets, and whatever looks like them, are taken
out. manifest.json says what is in the archive, how much was taken out, and what could not
be read: a control plane or a proxy that does not answer costs its part only. Where nothing at all can be read there is no
archive, and the exit status is 1; so it is where a proxy that is named is not known.

Look through it before you give it away: names, addresses and routes are in it.`,
		Example: `  moonsail bug-report
  moonsail bug-report reviews-v1-1.shop --cpu 10s --file report.tar.gz
  moonsail bug-report --kubeconfig ~/.kube/config --address https://mesh.example:15014 --token-file token`,
		RunE: f.run,
	}
	f.client.addFlags(cmd)
	f.kube.add(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "`FILE` to write (default: moonsail-bug-report-TIME.tar.gz)")
	fs.IntVar(&f.sample, "proxies", 5, "at most so many proxies, where none are named: those that lack something first")
	fs.IntVar(&f.changes, "changes", 1024, "at most so many changes of the change log")
	fs.DurationVar(&f.cpu, "cpu", 0, "length of a CPU profile; 0: none")
	fs.IntVar(&f.maxMB, "max-size", 256, "at most so many MB before compression; what does not fit is left out, and said so")
	fs.DurationVar(&f.timeout, "timeout", 20*time.Second, "for each part")
	cmd.ValidArgsFunction = f.client.proxyNames(maxNamedProxies)
	return cmd
}

// maxNamedProxies bounds what the shell completes.
const maxNamedProxies = 64

func (f *bugReportFlags) run(cmd *cobra.Command, proxies []string) error {
	if f.sample < 0 || f.changes < 1 || f.cpu < 0 || f.maxMB < 1 || f.timeout <= 0 {
		return terminal.UsageError{Err: errors.New("--proxies and --cpu are not negative, --changes, --max-size and --timeout not 0")}
	}
	now := time.Now()
	folder := "moonsail-bug-report-" + now.UTC().Format("20060102T150405Z")
	if f.file == "" {
		f.file = folder + ".tar.gz"
	}
	progress := terminal.StartProgress(cmd.ErrOrStderr(), "looking what there is")
	defer progress.Done()
	if err := f.known(cmd.Context(), proxies); err != nil {
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
	return tellReport(cmd.OutOrStdout(), f.file, m)
}

// write writes the archive beside its place and puts it there when it is whole.
func (f *bugReportFlags) write(ctx context.Context, items []bugreport.Item, o bugreport.Options) (*bugreport.Manifest, error) {
	out, err := os.CreateTemp(filepath.Dir(f.file), ".bug-report-*")
	if err != nil {
		return nil, &terminal.UserError{Where: "--file " + f.file, Err: err, Next: "name a file that can be written"}
	}
	defer func() { _ = os.Remove(out.Name()) }() // it is not there any more where all went well
	m, err := bugreport.Write(ctx, out, items, o)
	if err == nil && len(m.Files)-m.Failed <= 1 { // this build
		err = &terminal.UserError{What: "there is nothing to report", Where: f.client.address, Err: errors.New(firstFailure(m)),
			Next: "say where the control plane is with --address, or where the cluster is with --kubeconfig"}
	}
	if err == nil {
		err = out.Sync()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = ctx.Err() // interrupted: half a report is none
	}
	if err == nil {
		err = os.Rename(out.Name(), f.file)
	}
	return m, err
}

// firstFailure is why the first part of a report could not be read.
func firstFailure(m *bugreport.Manifest) string {
	for i := range m.Files {
		if m.Files[i].Error != "" {
			return m.Files[i].Error
		}
	}
	return "all parts are empty"
}

func tellReport(w io.Writer, file string, m *bugreport.Manifest) error {
	s := terminal.StyleFor(w)
	fmt.Fprintf(w, "%s: %d files, %.1f MB before compression; %d secrets or what looked like them taken out\n",
		s.Bold(file), len(m.Files)-m.Failed, float64(m.Bytes)/(1<<20), m.Redacted)
	for _, one := range m.Files {
		switch {
		case one.Error != "":
			fmt.Fprintf(w, "  %s %s: %s\n", s.Warn("not read"), one.Name, one.Error)
		case one.Cut:
			fmt.Fprintf(w, "  %s %s: it is longer\n", s.Warn("cut"), one.Name)
		}
	}
	_, err := fmt.Fprintln(w, "look through it before you give it away: names, addresses and routes are in it")
	return err
}

// page is a file made of a page of the control plane's.
func (f *bugReportFlags) page(name, path, about string, binary bool) bugreport.Item {
	return bugreport.Item{Name: name, About: about, Binary: binary, Read: func(ctx context.Context) ([]byte, error) { return f.client.text(ctx, path) }}
}

// items are the files of a report, the most telling first: what comes last is left out first.
func (f *bugReportFlags) items(ctx context.Context, proxies []string) []bugreport.Item {
	own, err := json.MarshalIndent(version.Get(), "", "  ")
	items := []bugreport.Item{
		{Name: "client.json", About: "the build of the command that wrote this", Read: func(context.Context) ([]byte, error) { return own, err }},
		f.page("version.json", "/version", "the control plane's build", false),
		f.page("flags.txt", "/debug/pprof/cmdline", "the control plane's command line", false),
		f.page("ready.json", "/ready", "whether it serves what its sources hold", false),
		f.page("problems.json", "/debug/problems", "what is wrong with the configuration", false),
		f.page("proxies.json", "/debug/proxies", "connected proxies", false),
		f.page("changes.json", fmt.Sprintf("/debug/changes?n=%d", f.changes), "the change log, newest first", false),
		f.page("stale.json", "/debug/stale", "proxies that hold endpoints which are gone", false),
		f.page("metrics.txt", "/metrics", "metrics", false),
		f.page("scopes.json", "/debug/scopes", "scopes", false),
		f.page("store.json", "/debug/store", "how many objects there are", false),
		f.page("profiles/goroutines.txt", "/debug/pprof/goroutine?debug=2", "what each goroutine does", false),
		f.page("profiles/heap.pb.gz", "/debug/pprof/heap", "memory in use", true),
		f.page("profiles/allocs.pb.gz", "/debug/pprof/allocs", "memory allocated so far", true),
		f.page("profiles/mutex.pb.gz", "/debug/pprof/mutex", "contention of locks (empty without --profile-mutex)", true),
		f.page("profiles/block.pb.gz", "/debug/pprof/block", "what goroutines waited for (empty without --profile-block)", true),
	}
	if f.cpu > 0 {
		items = append(items, f.page("profiles/cpu.pb.gz", fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(f.cpu.Seconds()))), "CPU time", true))
	}
	for _, p := range f.chosen(ctx, proxies) {
		items = append(items, f.proxy(p)...)
	}
	for _, k := range model.Kinds {
		items = append(items, f.page("store/"+string(k)+".json", "/debug/store/"+string(k), "objects of that kind that the control plane has", false))
	}
	return append(items, f.cluster(ctx)...)
}

// Kubernetes' objects, or why there are none.
func (f *bugReportFlags) cluster(ctx context.Context) []bugreport.Item {
	if f.kube.cluster.Kubeconfig == "" {
		return nil
	}
	failed := func(err error) []bugreport.Item {
		return []bugreport.Item{{Name: "kubernetes", About: "objects of the cluster", Read: func(context.Context) ([]byte, error) { return nil, err }}}
	}
	client, err := kube.Connect(f.kube.cluster)
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	lists, err := client.Listings(ctx, model.DefaultMesh().RootNamespace)
	if err != nil {
		return failed(err)
	}
	var items []bugreport.Item
	for _, l := range lists {
		items = append(items, bugreport.Item{Name: "kubernetes/" + l.Kind + ".json", About: "objects of that kind in the API server", Read: l.Read})
	}
	slices.SortFunc(items, func(a, b bugreport.Item) int { return len(a.Name) - len(b.Name) })
	return items
}

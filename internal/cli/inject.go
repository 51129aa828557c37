package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// injectFlags are those of "moonsail inject".
type injectFlags struct {
	file, out, config string
	mesh              string
	image, revision   string
	xds               string
	classic           bool
}

// NewInjectCommand is "moonsail inject".
func NewInjectCommand() *cobra.Command {
	f := &injectFlags{}
	cmd := &cobra.Command{
		Use:     "inject -f FILE",
		Aliases: []string{"kube-inject"}, // istioctl's
		Short:   "Add a sidecar to the Pods, Deployments... of a YAML file",
		Long: `Adds a sidecar to what makes Pods: Deployment, StatefulSet, DaemonSet, ReplicaSet,
ReplicationController, Job, CronJob, Pod, and lists of them. All else is copied as it is. It does
what the mutating webhook of "moonsail serve" does when Pods are created; doing both, or this
twice, is doing it once.

Istio's labels and annotations are honoured, as sidecar.istio.io/inject, proxyCPU,
interceptionMode and userVolume; so are the fields of its ConfigMap istio-sidecar-injector
(templates, aliases, selectors) in the file given with --config. What gets no sidecar is told on
stderr, with the reason.`,
		Example: `  moonsail inject -f deployment.yaml | kubectl apply -f -
  moonsail inject -f - -o injected.yaml --config injection.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "YAML `FILE` to read; - is stdin")
	fs.StringVarP(&f.out, "output", "o", "", "`FILE` to write (default: stdout)")
	fs.StringVar(&f.config, "config", "", "YAML `FILE` that says what is injected: image, resources, templates...")
	fs.StringVar(&f.mesh, "mesh", "", "YAML `FILE` or directory with what the mesh says of sidecars: ProxyConfigs, and the ConfigMap istio (defaultConfig)")
	fs.StringVar(&f.image, "image", "", "the sidecar's `IMAGE`, in place of the configuration's")
	fs.StringVar(&f.revision, "revision", "", "the control plane's revision")
	fs.StringVar(&f.xds, "xds-address", "", "the control plane's `ADDR` (default istiod.istio-system.svc:15012)")
	fs.BoolVar(&f.classic, "classic-sidecar", false, "make the sidecar an ordinary container, for Kubernetes before 1.29")
	_ = cmd.MarkFlagRequired("file") // the only error is a flag that does not exist
	return cmd
}

func (f *injectFlags) run(cmd *cobra.Command) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	name, text, err := f.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	if p := file.Syntax(name, text); p != nil {
		return &terminal.UserError{What: "nothing was injected: " + p.Message, Where: p.Where(), Next: "correct it, and inject again"}
	}
	var out bytes.Buffer // nothing is written where anything is wrong
	err = c.File(bytes.NewReader(text), &out, func(object, why string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s gets no sidecar: %s\n", object, why) })
	if err != nil {
		return &terminal.UserError{What: "nothing was injected", Where: name, Err: err, Next: "correct it, and inject again"}
	}
	if f.out == "" {
		_, err = io.Copy(cmd.OutOrStdout(), &out)
		return err
	}
	if err := os.WriteFile(f.out, out.Bytes(), 0o644); err != nil { //nolint:gosec // manifests are for others to read
		return &terminal.UserError{Where: "-o " + f.out, Err: err, Next: "name a file that can be written; without -o it goes to standard output"}
	}
	return nil
}

// read gives what is to be injected, and how messages name it.
func (f *injectFlags) read(stdin io.Reader) (name string, text []byte, err error) {
	if f.file == file.Stdin {
		text, err = io.ReadAll(stdin)
		return "standard input", text, err
	}
	if text, err = os.ReadFile(f.file); err != nil {
		return "", nil, &terminal.UserError{Where: "-f " + f.file, Err: err, Next: "name a file of YAML, or - for standard input"}
	}
	return f.file, text, nil
}

// load reads the configuration and puts the flags over it.
func (f *injectFlags) load() (*inject.Config, error) {
	c := inject.Default()
	if f.config != "" {
		text, err := readYAML("--config", f.config)
		if err != nil {
			return nil, err
		}
		if c, err = inject.Load(text); err != nil {
			return nil, &terminal.UserError{Where: "--config " + f.config, Err: err, Next: "docs/reference/interception.md lists the fields"}
		}
	}
	for _, flag := range []struct{ from, into *string }{{&f.image, &c.Image}, {&f.revision, &c.Revision}, {&f.xds, &c.XDSAddress}} {
		if *flag.from != "" {
			*flag.into = *flag.from
		}
	}
	c.NativeSidecar = c.NativeSidecar && !f.classic
	if err := f.readMesh(c); err != nil {
		return nil, err
	}
	return c, c.Prepare()
}

// readMesh reads what the mesh says of sidecars.
func (f *injectFlags) readMesh(c *inject.Config) error {
	if f.mesh == "" {
		return nil
	}
	tree, err := file.Analyze(f.mesh, config.Decoder{})
	if err != nil {
		return unreadable("--mesh", f.mesh, err)
	}
	for _, p := range tree.Problems {
		if k := p.Object.Kind; p.Severity == problem.SeverityError && (k == model.KindProxyConfig || k == model.KindMeshConfig || k == "") {
			where := p.Where()
			p.File, p.Line = "", 0
			return &terminal.UserError{What: "--mesh: " + strings.TrimPrefix(p.String(), "error: "), Where: where, Next: "'moonsail analyze' tells all that is wrong with it"}
		}
	}
	said := &model.ProxyConfigs{RootNamespace: model.DefaultMesh().RootNamespace}
	for _, o := range tree.Objects {
		if m, ok := o.(*model.MeshConfig); ok && m.Namespace == said.RootNamespace {
			said.TakeMesh(m)
		}
		said.Add(o)
	}
	c.ProxyConfigs = said
	return nil
}

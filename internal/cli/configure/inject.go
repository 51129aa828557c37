package configure

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// injectFlags are the values of the flags of `moonsail inject`.
type injectFlags struct {
	file, out, config string
	mesh              string
	image, revision   string
	xds               string
	classic           bool
}

func newInjectCommand() *cobra.Command {
	f := &injectFlags{}
	cmd := &cobra.Command{
		Use:     "inject -f FILE",
		Aliases: []string{"kube-inject"}, // istioctl's
		Short:   "Add sidecars to the Pods and Deployments of a YAML file",
		Long: `Add a sidecar to each object of a YAML file that creates Pods: Deployment, StatefulSet, DaemonSet,
ReplicaSet, ReplicationController, Job, CronJob, Pod, and lists of them. Other objects are copied
unchanged. The result is the same as with the mutating webhook of 'moonsail serve'. To inject twice
is harmless.

Istio's labels and annotations apply, for example sidecar.istio.io/inject, proxyCPU,
interceptionMode and userVolume. --config takes the fields of Istio's ConfigMap
istio-sidecar-injector (templates, aliases, selectors). Standard error lists the objects without a
sidecar and the reasons.`,
		Example: `  # Inject a Deployment, and apply it
  moonsail inject -f deployment.yaml | kubectl apply -f -

  # Inject standard input into a file
  moonsail inject -f - -o injected.yaml --config injection.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.file, "file", "f", "", "YAML `FILE` to read, or - for standard input")
	fs.StringVarP(&f.out, "output", "o", "", "`FILE` to write (default: standard output)")
	fs.StringVar(&f.config, "config", "", "YAML `FILE` with the configuration of injection: image, resources, templates")
	fs.StringVar(&f.mesh, "mesh", "", "YAML `FILE` or directory with ProxyConfigs and the ConfigMap istio (defaultConfig)")
	fs.StringVar(&f.image, "image", "", "`IMAGE` of the sidecar, instead of the configured one")
	fs.StringVar(&f.revision, "revision", "", "`REVISION` of the control plane")
	fs.StringVar(&f.xds, "xds-address", "", "`ADDR` of the control plane (default istiod.istio-system.svc:15012)")
	fs.BoolVar(&f.classic, "classic-sidecar", false, "add the sidecar as an ordinary container, for Kubernetes before 1.29")
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
		return &terminal.UserError{What: "-f: " + p.Message, Where: p.Where(), Next: "correct the input"}
	}
	var out bytes.Buffer // written only if all objects are valid
	err = c.File(bytes.NewReader(text), &out, func(object, note string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", object, note) })
	if err != nil {
		return &terminal.UserError{What: "cannot inject", Where: name, Err: err, Next: "correct the input"}
	}
	if f.out == "" {
		_, err = io.Copy(cmd.OutOrStdout(), &out)
		return err
	}
	if err := os.WriteFile(f.out, out.Bytes(), 0o644); err != nil { //nolint:gosec // manifests have no secrets
		return &terminal.UserError{Where: "-o " + f.out, Err: err, Next: "name a file that can be written, or leave out -o for standard output"}
	}
	return nil
}

// read returns the input, and its name for messages.
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

// load reads the configuration. Flags take precedence.
func (f *injectFlags) load() (*inject.Config, error) {
	c := inject.Default()
	if f.config != "" {
		text, err := client.ReadYAML("--config", f.config)
		if err != nil {
			return nil, err
		}
		if c, err = inject.Load(text); err != nil {
			return nil, &terminal.UserError{Where: "--config " + f.config, Err: err, Next: "see docs/reference/interception.md for the fields"}
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

// readMesh reads the mesh's settings of sidecars.
func (f *injectFlags) readMesh(c *inject.Config) error {
	if f.mesh == "" {
		return nil
	}
	tree, err := file.Analyze(f.mesh, config.Decoder{})
	if err != nil {
		return client.Unreadable("--mesh", f.mesh, err)
	}
	for _, p := range tree.Problems {
		if k := p.Object.Kind; p.Severity == problem.SeverityError && (k == model.KindProxyConfig || k == model.KindMeshConfig || k == "") {
			where := p.Where()
			p.File, p.Line = "", 0
			return &terminal.UserError{What: "--mesh: " + strings.TrimPrefix(p.String(), "error: "), Where: where, Next: "run 'moonsail analyze' on it for all problems"}
		}
	}
	settings := &model.ProxyConfigs{RootNamespace: model.DefaultMesh().RootNamespace}
	for _, o := range tree.Objects {
		if m, ok := o.(*model.MeshConfig); ok && m.Namespace == settings.RootNamespace {
			settings.TakeMesh(m)
		}
		settings.Add(o)
	}
	c.ProxyConfigs = settings
	return nil
}

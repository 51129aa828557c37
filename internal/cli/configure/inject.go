package configure

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// injectFlags are the values of the flags of `moonsail inject`.
type injectFlags struct {
	file, out, config string
	mesh              string
	image, revision   string
	xds               string
	classic           bool
	// namespace is that of objects that name none, and root that of the control plane.
	namespace, root string
	cluster         client.Cluster
}

func newInjectCommand() *cobra.Command {
	f := &injectFlags{cluster: client.Cluster{Rights: "ask for the right to get ConfigMap moonsail-injection, or give --config or --image"}}
	cmd := &cobra.Command{
		Use:     "inject -f FILE",
		Aliases: []string{"kube-inject"}, // istioctl's
		Short:   "Add sidecars to the Pods and Deployments of a YAML file",
		Long: `Add a sidecar to each object of a YAML file that creates Pods: Deployment, StatefulSet, DaemonSet,
ReplicaSet, ReplicationController, Job, CronJob, Pod, and lists of them. Other objects are copied
unchanged. To inject twice is harmless.

The settings are those of the cluster that kubectl uses, so the result is the same as with its
mutating webhook: the ConfigMap moonsail-injection of the control plane's namespace, MeshConfig, and
ProxyConfigs. With --config or --image the command reads no cluster, unless --kubeconfig or --context
names one: settings are then those of --config and --mesh, and defaults.

Istio's labels and annotations apply, for example sidecar.istio.io/inject, proxyCPU,
interceptionMode and userVolume. --config takes the fields of Istio's ConfigMap
istio-sidecar-injector (templates, aliases, selectors). Standard error lists the objects without a
sidecar and the reasons.`,
		Example: `  # Inject a Deployment with the settings of the cluster, and apply it
  moonsail inject -f deployment.yaml | kubectl apply -f -

  # Inject standard input into a file, without a cluster
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
	fs.StringVar(&f.xds, "xds-address", "", "`ADDR` of the control plane (default: the configured one, else istiod.istio-system.svc:15012)")
	fs.StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of objects that name none")
	fs.StringVarP(&f.root, "istioNamespace", "i", model.DefaultMesh().RootNamespace, "`NAMESPACE` of the control plane in the cluster")
	f.cluster.AddFlags(cmd)
	fs.BoolVar(&f.classic, "classic-sidecar", false, "add the sidecar as an ordinary container, for Kubernetes before 1.29")
	_ = cmd.MarkFlagRequired("file") // the only error is a flag that does not exist
	return cmd
}

func (f *injectFlags) run(cmd *cobra.Command) error {
	name, text, err := f.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	if p := file.Syntax(name, text); p != nil {
		return &terminal.UserError{What: "-f: " + p.Message, Where: p.Where(), Next: "correct the input"}
	}
	c, err := f.load(cmd.Context())
	if err != nil {
		return err
	}
	var out bytes.Buffer // written only if all objects are valid
	err = c.File(bytes.NewReader(text), &out, func(object, note string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", object, note) })
	if err != nil {
		return &terminal.UserError{What: "cannot inject", Where: name, Err: err, Next: "correct the input"}
	}
	if f.out == "" {
		_, err = io.Copy(terminal.Raw(cmd.OutOrStdout()), &out)
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
func (f *injectFlags) load(ctx context.Context) (*inject.Config, error) {
	c, err := f.settings(ctx)
	if err != nil {
		return nil, err
	}
	for _, flag := range []struct{ from, into *string }{{&f.image, &c.Image}, {&f.xds, &c.XDSAddress}, {&f.namespace, &c.FileNamespace}} {
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

// settings reads the configuration of the file, else of the cluster. With an image the defaults will do.
func (f *injectFlags) settings(ctx context.Context) (*inject.Config, error) {
	named := f.cluster.Kubeconfig != "" || f.cluster.Context != ""
	switch {
	case f.config != "" && named:
		return nil, terminal.UsageError{Err: errors.New("--config excludes --kubeconfig and --context: give either")}
	case f.config == "" && (f.image == "" || named):
		return f.ofCluster(ctx)
	}
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
	c.Revision = cmp.Or(f.revision, c.Revision)
	return c, nil
}

// ofCluster reads the configuration, MeshConfig and ProxyConfigs of a revision in a cluster.
func (f *injectFlags) ofCluster(ctx context.Context) (*inject.Config, error) {
	access, known := f.cluster.Default()
	if !known {
		return nil, &terminal.UserError{What: "no settings of injection", Where: "this machine has no kubeconfig",
			Next: "name a cluster with --kubeconfig, or give --image or --config"}
	}
	k, err := kube.Connect(access)
	if err != nil {
		return nil, f.cluster.Explain(err)
	}
	defer k.Close()
	text, revision, err := f.installed(ctx, k)
	if err != nil {
		return nil, err
	}
	c, err := inject.Load([]byte(text))
	if err != nil {
		return nil, &terminal.UserError{Where: f.where(k), Err: err, Next: "use the moonsail of the installed version, or give --config"}
	}
	decoder := config.Decoder{Revision: revision}
	if decoder.MeshConfigMap, err = meshConfigOf(ctx, k, f.root, revision); err != nil {
		return nil, f.cluster.Explain(err)
	}
	mesh, err := k.ReadProxySettings(ctx, decoder, f.root)
	if err != nil {
		return nil, f.cluster.Explain(err)
	}
	c.ProxyConfigs = proxySettings(mesh.Objects, f.root)
	return c, nil
}

// installed returns the configuration of injection of a revision, which may be a tag's.
func (f *injectFlags) installed(ctx context.Context, k *kube.Client) (text, revision string, err error) {
	text, found, err := k.InjectionConfig(ctx, f.root, injectionOf(f.revision))
	if err == nil && !found {
		if revision, _ = k.RevisionOfTag(ctx, cmp.Or(f.revision, model.DefaultRevision)); revision != "" { // an error: no such tag
			text, found, err = k.InjectionConfig(ctx, f.root, injectionOf(revision))
		}
	}
	switch {
	case err != nil:
		return "", "", f.cluster.Explain(err)
	case !found:
		return "", "", &terminal.UserError{What: "no settings of injection: not found", Where: f.where(k),
			Next: "install Moonsail there, name its namespace with --istioNamespace and its revision with --revision, or give --image or --config"}
	}
	return text, cmp.Or(revision, f.revision), nil
}

func (f *injectFlags) where(k *kube.Client) string {
	return fmt.Sprintf("ConfigMap %s of namespace %s at %s", injectionOf(f.revision), f.root, k.Address())
}

// injectionOf returns the name of the ConfigMap with a revision's configuration of injection.
func injectionOf(revision string) string {
	if revision == "" || revision == model.DefaultRevision {
		return "moonsail-injection"
	}
	return "moonsail-injection-" + revision
}

// proxySettings are the mesh's settings of sidecars.
func proxySettings(objects []model.Object, root string) *model.ProxyConfigs {
	settings := &model.ProxyConfigs{RootNamespace: root}
	for _, o := range objects {
		if m, ok := o.(*model.MeshConfig); ok && m.Namespace == root {
			settings.TakeMesh(m)
		}
		settings.Add(o)
	}
	return settings
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
	c.ProxyConfigs = proxySettings(tree.Objects, f.root)
	return nil
}

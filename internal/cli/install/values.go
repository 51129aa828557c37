package install

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// chartFlags holds the flags that choose a control plane and the values of its charts.
type chartFlags struct {
	deploy.Options
	files []string // of values
	set   []string // values as NAME=VALUE
}

// addFlags adds the flags to cmd.
func (c *chartFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&c.Image, "image", "", "`IMAGE` of the control plane and the sidecars, as 'make image' builds it")
	fs.StringVarP(&c.Revision, "revision", "r", model.DefaultRevision, "`REVISION` of the control plane; a revision other than default can run beside Istio")
	fs.IntVar(&c.Replicas, "replicas", 0, "`NUMBER` of control planes (default: the value replicaCount, 2)")
	c.addValueFlags(cmd)
}

func (c *chartFlags) addValueFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	namespaceFlags(cmd, &c.Namespace)
	fs.StringArrayVarP(&c.files, "values", "f", nil, "YAML `FILE` with values of the charts, as for Helm; may be repeated; -: standard input")
	fs.StringArrayVar(&c.set, "set", nil, "`NAME=VALUE` of a chart, as for Helm; may be repeated")
	_ = cmd.MarkFlagFilename("values", "yaml", "yml") // the only error is a flag that does not exist
}

// namespaceFlags adds the flags that choose the control plane's namespace: kubectl's and istioctl's.
func namespaceFlags(cmd *cobra.Command, namespace *string) {
	fs := cmd.Flags()
	fs.StringVarP(namespace, "namespace", "n", deploy.DefaultNamespace, "`NAMESPACE` of the control plane")
	fs.StringVarP(namespace, "istioNamespace", "i", deploy.DefaultNamespace, "istioctl's name for --namespace")
	_ = fs.MarkHidden("istioNamespace") // the only error is a flag that does not exist
}

// values reads the values that files and settings give.
func (c *chartFlags) values(stdin io.Reader) (map[string]any, error) {
	var texts [][]byte
	for _, name := range c.files {
		text, err := read(name, stdin)
		if err != nil {
			return nil, &terminal.UserError{What: "cannot read values", Where: "--values " + name, Err: err}
		}
		texts = append(texts, text)
	}
	values, err := deploy.Values(texts, c.set)
	if err != nil {
		return nil, terminal.UsageError{Err: err}
	}
	return values, nil
}

func read(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// releases returns the releases of the charts base and moonsail. Values of both may be in the same file. Values of an
// installed version, if there is one, apply where none are given.
func (c *chartFlags) releases(cmd *cobra.Command, installed *state) (base, controlPlane deploy.Release, err error) {
	if cmd.Flags().Changed("replicas") && c.Replicas < 1 {
		return base, controlPlane, terminal.UsageError{Err: fmt.Errorf("--replicas %d: use 1 or more", c.Replicas)}
	}
	values, err := c.values(cmd.InOrStdin())
	if err != nil {
		return base, controlPlane, err
	}
	if r, ok := values["revision"].(string); ok && !cmd.Flags().Changed("revision") {
		if c.Revision = r; r == "" {
			c.Revision = model.DefaultRevision
		}
	}
	baseValues, values, err := deploy.SplitValues(values)
	if err != nil {
		return base, controlPlane, err
	}
	if installed != nil {
		baseValues, values = deploy.MergeValues(baseValues, installed.Base), deploy.MergeValues(values, installed.Values)
	}
	if c.Image == "" && !namesImage(values) {
		return base, controlPlane, terminal.UsageError{Err: errors.New("--image is missing: use --image IMAGE, or set the value image or hub")}
	}
	c.Values = values
	if controlPlane, err = c.Release(); err != nil {
		return base, controlPlane, err
	}
	return deploy.Release{Chart: deploy.BaseChart, Namespace: controlPlane.Namespace, Values: baseValues}, controlPlane, nil
}

// namesImage reports whether values name an image. The charts have no default that exists.
func namesImage(values map[string]any) bool {
	global, _ := values["global"].(map[string]any)
	for _, v := range []any{values["image"], values["hub"], global["hub"]} {
		if s, _ := v.(string); s != "" {
			return true
		}
	}
	return false
}

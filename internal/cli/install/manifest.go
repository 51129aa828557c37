// Package install holds the commands that bring Moonsail into a cluster and Envoy onto a machine.
package install

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		newInstallCommand(), newUpgradeCommand(), newUninstallCommand(), NewPrecheckCommand(), newTagCommand(),
		newManifestCommand(), newEnvoyCommand(),
	}
}

func newManifestCommand() *cobra.Command {
	var c chartFlags
	var chart, name string
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE",
		Short: "Print the Kubernetes objects of a control plane",
		Long: `Print the Kubernetes objects of a control plane for 'kubectl apply': its account and rights, webhooks
that check objects and inject sidecars, Services and a Deployment, in the namespace istio-system,
which must exist. 'kubectl delete' with the same objects removes the control plane. The objects are
those of the Helm chart deploy/charts/moonsail, and --set and --values set its values. --chart base
prints the resource definitions, --chart gateway a gateway, which --revision injects, and --chart cni
the CNI plugin of --image.

With --revision the control plane runs beside another one, for example Istio's. Its objects have
other names. It injects sidecars only where the label istio.io/rev of a Namespace or Pod names it,
and ignores objects with the label of another revision. Gateways of the Gateway API are served
nevertheless; their label selects the control plane that deploys them. All control planes use the same
certificate authority, so that their sidecars call each other with mutual TLS.
docs/migrate-from-istio.md describes a migration.`,
		Example: `  # Install a control plane
  kubectl create namespace istio-system
  moonsail manifest --chart base | kubectl apply --server-side -f -
  moonsail manifest --image registry.example.com/moonsail:0.1.0 | kubectl apply -f -

  # The same with a value of the chart
  moonsail manifest --image registry.example.com/moonsail:0.1.0 --set autoscaleEnabled=true

  # Install a control plane beside Istio, and move a namespace to it
  moonsail manifest --image registry.example.com/moonsail:0.1.0 --revision moonsail | kubectl apply -f -
  kubectl label namespace shop istio-injection- istio.io/rev=moonsail --overwrite

  # Install a gateway
  moonsail manifest --chart gateway --name istio-ingressgateway -n istio-ingress | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			release, err := c.release(cmd, chart, name)
			if err != nil {
				return wrongManifest(err)
			}
			text, err := release.Manifest()
			if err != nil {
				return wrongManifest(err)
			}
			_, err = terminal.Raw(cmd.OutOrStdout()).Write(text)
			return err
		},
	}
	c.addFlags(cmd)
	fs := cmd.Flags()
	fs.StringVar(&chart, "chart", deploy.ControlPlaneChart, "`CHART` to print: moonsail, base, gateway or cni")
	fs.StringVar(&name, "name", "", "`NAME` of the gateway (default: gateway)")
	terminal.Offer(cmd, "chart", deploy.ControlPlaneChart, deploy.BaseChart, deploy.GatewayChart, deploy.CNIChart)
	return cmd
}

// release returns the release of one chart.
func (c *chartFlags) release(cmd *cobra.Command, chart, name string) (deploy.Release, error) {
	if chart == deploy.ControlPlaneChart {
		_, release, err := c.releases(cmd, nil)
		return release, err
	}
	values, err := c.values(cmd.InOrStdin())
	if err != nil {
		return deploy.Release{}, err
	}
	values, err = c.withFlags(cmd, chart, values)
	return deploy.Release{Chart: chart, Name: name, Namespace: c.Namespace, Values: values}, err
}

// valueOfFlag names the value of another chart that a flag of a control plane means.
var valueOfFlag = map[string]map[string]string{
	deploy.GatewayChart: {"revision": "revision"},
	deploy.CNIChart:     {"image": "image"},
}

// withFlags adds the values that the flags of a control plane mean in another chart. A flag that means none is an error.
func (c *chartFlags) withFlags(cmd *cobra.Command, chart string, values map[string]any) (map[string]any, error) {
	own := map[string]any{}
	for _, flag := range []string{"image", "revision", "replicas"} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		name := valueOfFlag[chart][flag]
		if name == "" {
			return nil, terminal.UsageError{Err: fmt.Errorf("--%s: the chart %s does not use it: leave it out, or use --set with a value of the chart", flag, chart)}
		}
		own[name] = cmd.Flags().Lookup(flag).Value.String()
	}
	return deploy.MergeValues(own, values), nil
}

// wrongManifest adds what to do to an error of the charts.
func wrongManifest(err error) error {
	if usage := (terminal.UsageError{}); errors.As(err, &usage) {
		return err
	}
	return &terminal.UserError{What: "cannot make the manifest", Err: err, Next: "see 'moonsail manifest --help'"}
}

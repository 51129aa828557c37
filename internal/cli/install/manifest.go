// Package install holds the commands that bring Moonsail into a cluster and Envoy onto a machine: `moonsail manifest` and
// `moonsail envoy`.
package install

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newManifestCommand(), newEnvoyCommand()}
}

func newManifestCommand() *cobra.Command {
	var o deploy.Options
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE",
		Short: "Print the Kubernetes objects of a control plane",
		Long: `Print the Kubernetes objects of a control plane for 'kubectl apply': its account and rights, webhooks
that check objects and inject sidecars, Services and a Deployment, in the namespace istio-system,
which must exist. 'kubectl delete' with the same objects removes the control plane.

With --revision the control plane runs beside another one, for example Istio's. Its objects have
other names. It injects sidecars only where the label istio.io/rev of a Namespace or Pod names it,
and ignores objects with the label of another revision. All control planes use the same certificate
authority, so that their sidecars call each other with mutual TLS. docs/migrate-from-istio.md
describes a migration.`,
		Example: `  # Install a control plane
  kubectl create namespace istio-system
  moonsail manifest --image registry.example.com/moonsail:1.0 | kubectl apply -f -

  # Install a control plane beside Istio, and move a namespace to it
  moonsail manifest --image registry.example.com/moonsail:1.0 --revision moonsail | kubectl apply -f -
  kubectl label namespace shop istio-injection- istio.io/rev=moonsail --overwrite`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := deploy.Manifest(o)
			if err != nil {
				return &terminal.UserError{What: "cannot make the manifest", Err: err, Next: "see 'moonsail manifest --help'"}
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Image, "image", "", "`IMAGE` of the control plane and the sidecars, as 'make image' builds it")
	fs.StringVar(&o.Revision, "revision", model.DefaultRevision, "`REVISION` of the control plane; with another than the default one it can run beside Istio")
	fs.IntVar(&o.Replicas, "replicas", 2, "number of control planes")
	_ = cmd.MarkFlagRequired("image") // the only error is a flag that does not exist
	return cmd
}

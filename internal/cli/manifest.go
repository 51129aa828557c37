package cli

import (
	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/deploy"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// NewManifestCommand is "moonsail manifest".
func NewManifestCommand() *cobra.Command {
	var o deploy.Options
	cmd := &cobra.Command{
		Use:   "manifest --image IMAGE",
		Short: "Print what a control plane takes in a cluster, for kubectl apply",
		Long: `Prints the objects of a control plane in Kubernetes: its account and rights, webhooks that check
objects and inject sidecars, Services and Deployment, in the namespace istio-system, which has to be there.
What was applied is taken away by kubectl delete of the same.

With --revision the control plane is one beside another, Istio's too: its objects have names of
their own, it injects only where the label istio.io/rev names it, on a Namespace or a Pod, and it
leaves objects to others that are labelled for them. Both sign by the same authority, so that their
sidecars call each other with mutual TLS. docs/migrate-from-istio.md describes the move from Istio.`,
		Example: `  kubectl create namespace istio-system
  moonsail manifest --image registry.example.com/moonsail:1.0 | kubectl apply -f -
  moonsail manifest --image registry.example.com/moonsail:1.0 --revision moonsail | kubectl apply -f -
  kubectl label namespace shop istio-injection- istio.io/rev=moonsail --overwrite`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := deploy.Manifest(o)
			if err != nil {
				return &terminal.UserError{What: "nothing was printed", Err: err, Next: "'moonsail manifest --help' has examples"}
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Image, "image", "", "`IMAGE` of the control plane and the sidecars, as 'make image' builds it")
	fs.StringVar(&o.Revision, "revision", model.DefaultRevision, "the control plane's `REVISION`; another than the default one may be beside Istio")
	fs.IntVar(&o.Replicas, "replicas", 2, "how many control planes")
	_ = cmd.MarkFlagRequired("image") // the only error is a flag that does not exist
	return cmd
}

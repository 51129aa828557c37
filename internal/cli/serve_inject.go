package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// serveInjectFlags are those of "moonsail serve" about the webhook that adds sidecars to Pods.
type serveInjectFlags struct {
	on     bool
	file   string
	config string // the MutatingWebhookConfiguration's name
}

func (f *serveInjectFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.on, "inject", false, "add sidecars to Pods: serve the mutating webhook, at "+webhook.InjectPath+" of --webhook-addr")
	fs.StringVar(&f.file, "inject-config", "", "YAML `FILE` that says what is injected (image, resources, templates...), as for \"moonsail inject\"")
	fs.StringVar(&f.config, "inject-webhook-config", "",
		"`NAME` of the MutatingWebhookConfiguration that is to trust a certificate which is made, for example moonsail-injector")
}

// into makes them part of the webhook's options, which have been checked otherwise.
func (f *serveInjectFlags) into(o *webhook.Options, cluster bool) error {
	switch {
	case !f.on && (f.file != "" || f.config != ""):
		return errors.New("--inject-config and --inject-webhook-config are for injection: give --inject too")
	case !f.on:
		return nil
	case o.Addr == "":
		return errors.New("--inject is a webhook: give --webhook-addr too")
	case f.config != "" && o.CertFile != "":
		return errors.New("--inject-webhook-config: not allowed with --webhook-cert: the issuer of that certificate sets the CA of the webhook's configuration")
	case f.config != "" && !cluster:
		return errors.New("--inject-webhook-config is an object of a cluster: leave it out with --config")
	}
	o.InjectConfig, o.Inject = f.config, inject.Default()
	if f.file == "" {
		return o.Inject.Prepare()
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return err
	}
	o.Inject, err = inject.Load(text)
	return err
}

package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
)

// webhookServer is the webhook with its open address.
type webhookServer struct {
	listener net.Listener
	trust    *webhook.Trust
}

// newWebhook opens the address; nil if the webhook is off.
func newWebhook(ctx context.Context, o Options) (*webhookServer, error) {
	if o.Webhook.Addr == "" {
		return nil, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Webhook.Addr)
	if err != nil {
		return nil, fmt.Errorf("--webhook-addr: %w", err)
	}
	return &webhookServer{ln, webhook.NewTrust(o.Webhook, time.Now())}, nil
}

// trusted returns the trust of the API server in the webhooks; nil if they are off.
func (w *webhookServer) trusted() *webhook.Trust {
	if w == nil {
		return nil
	}
	return w.trust
}

// untrusted reports webhooks that the API server does not trust.
func untrusted(t *webhook.Trust) problem.List {
	var out problem.List
	for _, text := range t.Problems(time.Now()) {
		out = append(out, problem.Problem{Severity: problem.SeverityError, Code: code.WebhookUntrusted, Message: text})
	}
	return out
}

// close closes the address of a webhook that does not serve.
func (w *webhookServer) close() {
	if w != nil {
		w.listener.Close()
	}
}

// serveWebhook serves until ctx ends.
func (p *parts) serveWebhook(ctx context.Context) error {
	o, w := p.opts, p.webhook
	handler := &webhook.Handler{
		Decoder: decoderOf(&o), Snapshot: p.pipeline.Snapshot, RootNamespace: o.Mesh.RootNamespace, Count: p.metrics.Admission, Log: o.Log,
	}
	o.Webhook.Trust, o.Webhook.Revision, o.Webhook.CountInjection = w.trust, o.Revision, p.metrics.Injection
	server, err := webhook.NewServer(o.Webhook, handler, p.source.client)
	if err != nil {
		w.listener.Close()
		return err
	}
	o.Log.Info("serving the validating webhook", "addr", w.listener.Addr().String(), "path", webhook.Path)
	return server.Serve(ctx, w.listener)
}

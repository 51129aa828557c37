package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// caBundle keeps the authority's certificate in a webhook configuration, so that the API server trusts this
// process. Each control plane adds its own certificate to those of others.
type caBundle struct {
	name      string
	kind      func(*kube.Client) (configurations, error)
	authority *authority
	client    *kube.Client
	trust     *Trust // may be nil
	log       *slog.Logger
}

// configurations reads a configuration by its name. It returns how the API server calls the webhooks,
// and a function that stores them after a change.
type configurations func(ctx context.Context, name string) (
	clients []*registrationv1.WebhookClientConfig, update func() error, err error)

func validating(c *kube.Client) (configurations, error) {
	api, err := kube.NewAPI[registrationv1.ValidatingWebhookConfiguration](c,
		registrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations"), registrationv1.AddToScheme)
	return configurationsOf(api, func(config *registrationv1.ValidatingWebhookConfiguration) (clients []*registrationv1.WebhookClientConfig) {
		for i := range config.Webhooks {
			clients = append(clients, &config.Webhooks[i].ClientConfig)
		}
		return clients
	}), err
}

func mutating(c *kube.Client) (configurations, error) {
	api, err := kube.NewAPI[registrationv1.MutatingWebhookConfiguration](c,
		registrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), registrationv1.AddToScheme)
	return configurationsOf(api, func(config *registrationv1.MutatingWebhookConfiguration) (clients []*registrationv1.WebhookClientConfig) {
		for i := range config.Webhooks {
			clients = append(clients, &config.Webhooks[i].ClientConfig)
		}
		return clients
	}), err
}

// webhookAPI is a kube.API of one kind of configuration.
type webhookAPI[T any] interface {
	Get(ctx context.Context, namespace, name string) (T, error)
	Update(ctx context.Context, config T) (T, error)
}

func configurationsOf[T any](api webhookAPI[T], clientsOf func(T) []*registrationv1.WebhookClientConfig) configurations {
	return func(ctx context.Context, name string) (clients []*registrationv1.WebhookClientConfig, update func() error, err error) {
		config, err := api.Get(ctx, "", name)
		if err != nil {
			return nil, nil, err
		}
		return clientsOf(config), func() error { _, err := api.Update(ctx, config); return err }, nil
	}
}

// Intervals of checks of the configuration.
const (
	keepEvery  = 15 * time.Second // after success
	retryEvery = 2 * time.Second
	againEvery = 20 * time.Millisecond // after a conflict with another control plane: until the certificate is added, this one rejects Pods
	apiTimeout = 10 * time.Second
)

// pause returns the time until the next check.
func pause(err error) time.Duration {
	switch {
	case err == nil:
		return keepEvery
	case apierrors.IsConflict(err):
		return againEvery
	}
	return retryEvery
}

// maxTrusted bounds our certificates in a bundle. Control planes that are gone leave theirs behind, so the first of the bundle are
// removed. A running control plane moves its own to the end when maxTrusted/2 are behind it. If more than maxTrusted/2 run, they
// write at each check.
const maxTrusted = 64

const pemBegin = "-----BEGIN "

// run keeps it until ctx ends.
func (b *caBundle) run(ctx context.Context) error {
	read, err := b.kind(b.client)
	if err != nil {
		return err
	}
	log := b.log.With("config", b.name)
	repeat(ctx, func() error {
		err := b.keep(ctx, read, time.Now())
		if ctx.Err() == nil && b.trust != nil {
			b.trust.note(b.name, err)
		}
		return err
	}, func(err error) { log.Warn("the API server does not trust the webhook, retrying", "error", err) })
	return nil
}

// repeat calls keep until ctx ends, and failed with each new error. A conflict with another control plane is not reported.
func repeat(ctx context.Context, keep func() error, failed func(error)) {
	var errs logonce.Errors
	for {
		err := keep()
		switch {
		case ctx.Err() != nil:
			return
		case apierrors.IsConflict(err):
		case errs.New(err):
			failed(err)
		}
		if clock.Sleep(ctx, pause(err)) != nil {
			return
		}
	}
}

// keep looks once, and writes where something is missing.
func (b *caBundle) keep(ctx context.Context, read configurations, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	clients, update, err := read(ctx, b.name)
	if err != nil {
		return err
	}
	if err := b.authority.issue(namesOf(clients), now); err != nil {
		return err
	}
	changed, added := false, false
	for _, c := range clients {
		bundle := trusting(c.CABundle, b.authority.PEM, now)
		changed = changed || !bytes.Equal(bundle, c.CABundle)
		added = added || !bytes.Contains(c.CABundle, b.authority.PEM)
		c.CABundle = bundle
	}
	if !changed {
		return nil
	}
	if err := update(); err != nil {
		return err // another control plane may have been first
	}
	if added {
		b.log.Info("the API server trusts this webhook now", "config", b.name)
	}
	return nil
}

// namesOf are the names by which the API server calls webhooks.
func namesOf(clients []*registrationv1.WebhookClientConfig) []string {
	var names []string
	for _, client := range clients {
		if s := client.Service; s != nil {
			names = append(names, s.Name+"."+s.Namespace+".svc")
		}
		if client.URL == nil {
			continue
		}
		if u, err := url.Parse(*client.URL); err == nil && u.Hostname() != "" {
			names = append(names, u.Hostname())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// trusting returns a bundle with a certificate in it, not far from the end. It keeps the certificates of others. Of ours, it
// removes those that have expired, and the first ones above maxTrusted.
func trusting(bundle, own []byte, now time.Time) []byte {
	if _, behind, ok := bytes.Cut(bundle, own); ok && bytes.Count(behind, []byte(pemBegin)) < maxTrusted/2 {
		return bundle
	}
	var foreign, ours [][]byte
	for rest := bundle; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		text := pem.EncodeToMemory(b)
		cert, err := x509.ParseCertificate(b.Bytes)
		switch {
		case err != nil || !strings.HasPrefix(cert.Subject.CommonName, issuer+" "):
			foreign = append(foreign, text)
		case now.Before(cert.NotAfter) && !bytes.Equal(text, own):
			ours = append(ours, text)
		}
	}
	ours = ours[max(0, len(ours)-(maxTrusted-1)):]
	return bytes.Join(slices.Concat(foreign, ours, [][]byte{own}), nil)
}

package webhook

import (
	"context"
	"slices"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// labelTag is Istio's label of the MutatingWebhookConfiguration of a revision tag.
const labelTag = "istio.io/tag"

// tagBundles keeps the certificate in the webhook configurations of the revision's tags. Tags come and go while the
// control plane runs.
type tagBundles struct {
	like     *caBundle // that of the revision
	revision string
}

// run keeps them until ctx ends.
func (t *tagBundles) run(ctx context.Context) error {
	read, err := mutating(t.like.client)
	if err != nil {
		return err
	}
	all, err := kube.NewObjects(t.like.client, "moonsail")
	if err != nil {
		return err
	}
	repeat(ctx, func() error { return t.keep(ctx, all, read) }, func(err error) {
		t.like.log.Warn("the webhooks of revision tags have no certificate of this control plane, retrying: see 'moonsail tag list'", "error", err)
	})
	return nil
}

// keep looks at each tag once, and returns the first error.
func (t *tagBundles) keep(ctx context.Context, all *kube.Objects, read configurations) error {
	within, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	resource := registrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	tags, err := all.List(within, resource, "", labelTag+","+model.LabelRevision+"="+t.revision)
	if err != nil {
		return err
	}
	service := t.service(within, read)
	var failed error
	for i := range tags {
		// Istio may have a revision of the same name.
		if service == "" || !slices.Contains(servicesOf(&tags[i]), service) {
			continue
		}
		one := *t.like
		one.name, one.trust = tags[i].GetName(), nil
		if err := one.keep(ctx, read, time.Now()); err != nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// service returns the Service of the revision's webhooks as NAMESPACE/NAME; empty: it is not known.
func (t *tagBundles) service(ctx context.Context, read configurations) string {
	clients, _, err := read(ctx, t.like.name)
	if err != nil || len(clients) == 0 || clients[0].Service == nil {
		return ""
	}
	return clients[0].Service.Namespace + "/" + clients[0].Service.Name
}

// servicesOf returns the Services of a configuration's webhooks as NAMESPACE/NAME.
func servicesOf(config *unstructured.Unstructured) []string {
	var out []string
	hooks, _, _ := unstructured.NestedSlice(config.Object, "webhooks")
	for _, h := range hooks {
		m, _ := h.(map[string]any)
		name, _, _ := unstructured.NestedString(m, "clientConfig", "service", "name")
		namespace, _, _ := unstructured.NestedString(m, "clientConfig", "service", "namespace")
		out = append(out, namespace+"/"+name)
	}
	return out
}

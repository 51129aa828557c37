package kube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Secret has the fields of a Secret that are used.
type Secret struct {
	Name, Type string
	Data       map[string][]byte
	Version    string // the resource version
}

// Secrets reads and writes the Secrets of one namespace.
type Secrets struct {
	api       *API[corev1.Secret, *corev1.Secret]
	namespace string
}

// Secrets returns the Secrets of a namespace.
func (c *Client) Secrets(namespace string) (*Secrets, error) {
	api, err := c.secrets()
	if err != nil {
		return nil, err
	}
	return &Secrets{api, namespace}, nil
}

func (c *Client) secrets() (*API[corev1.Secret, *corev1.Secret], error) {
	return NewAPI[corev1.Secret](c, corev1.SchemeGroupVersion.WithResource("secrets"), corev1.AddToScheme)
}

func (c *Client) configMaps() (*API[corev1.ConfigMap, *corev1.ConfigMap], error) {
	return NewAPI[corev1.ConfigMap](c, corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.AddToScheme)
}

// Get returns a Secret; nil if there is none.
func (s *Secrets) Get(ctx context.Context, name string) (*Secret, error) {
	o, err := s.api.Get(ctx, s.namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Secret{Name: o.Name, Type: string(o.Type), Data: o.Data, Version: o.ResourceVersion}, nil
}

// Create creates a Secret, unless it exists.
func (s *Secrets) Create(ctx context.Context, o *Secret) error {
	_, err := s.api.Create(ctx, o.object(s.namespace))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Replace replaces the Secret with its Version, unless it has changed.
func (s *Secrets) Replace(ctx context.Context, o *Secret) error {
	_, err := s.api.Update(ctx, o.object(s.namespace))
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (s *Secret) object(namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Name, ResourceVersion: s.Version},
		Type:       corev1.SecretType(s.Type), Data: s.Data,
	}
}

// unlimited returns a client without a limit of its rate.
func (c *Client) unlimited() *Client {
	out := &Client{config: rest.CopyConfig(c.config), http: c.http}
	out.config.QPS = -1
	return out
}

// TokenReview is the API server's answer about a token.
type TokenReview struct {
	Authenticated bool
	Audiences     []string
	Username      string // "system:serviceaccount:<namespace>:<name>"
	Error         string
}

// TokenReviews returns a function that reviews a token for an audience. Callers limit its rate.
func (c *Client) TokenReviews() (func(ctx context.Context, token, audience string) (TokenReview, error), error) {
	api, err := NewAPI[authenticationv1.TokenReview](c.unlimited(),
		authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"), authenticationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, token, audience string) (TokenReview, error) {
		o, err := api.Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
		})
		if err != nil {
			return TokenReview{}, err
		}
		s := &o.Status
		return TokenReview{Authenticated: s.Authenticated, Audiences: s.Audiences, Username: s.User.Username, Error: s.Error}, nil
	}, nil
}

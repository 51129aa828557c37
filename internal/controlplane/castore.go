package controlplane

import (
	"context"
	"fmt"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Istio's names of the Secrets with a certificate authority: the operator's, and the one that the control
// plane makes if there is none.
const (
	givenSecret   = "cacerts"
	ownSecret     = "istio-ca-secret"
	ownSecretType = "istio.io/ca-root"
)

// secrets reads and writes the Secrets of a namespace, as kube.Secrets does.
type secrets interface {
	Get(ctx context.Context, name string) (*kube.Secret, error)
	Create(ctx context.Context, o *kube.Secret) error
	Replace(ctx context.Context, o *kube.Secret) error
}

// secretStore is a ca.Store in Secrets of the root namespace. Only the authority uses it.
type secretStore struct {
	secrets   secrets
	namespace string
	given     bool // the operator's Secret is in force
}

// Place implements ca.Store.
func (s *secretStore) Place() string { return "Secrets of " + s.namespace }

// Read implements ca.Store. The operator's Secret precedes our own. After it was there, its absence is an
// error: workloads would not trust each other with another root.
func (s *secretStore) Read(ctx context.Context) (*ca.Contents, error) {
	switch o, err := s.secrets.Get(ctx, givenSecret); {
	case err != nil:
		return nil, err
	case o != nil && isAuthority(o):
		c := s.contents(o)
		s.given = s.given || len(c.Files[ca.CertFile]) > 0 && len(c.Files[ca.KeyFile]) > 0
		return c, nil
	case s.given:
		return nil, fmt.Errorf("secret %s/%s: deleted: restore it, or restart the control plane to continue without it", s.namespace, givenSecret)
	}
	o, err := s.secrets.Get(ctx, ownSecret)
	if o == nil || err != nil {
		return nil, err
	}
	return s.contents(o), nil
}

// tlsNames are the keys of Secrets of type kubernetes.io/tls, as cert-manager makes them.
var tlsNames = map[string]string{"tls.crt": ca.CertFile, "tls.key": ca.KeyFile, "ca.crt": ca.RootFile}

// isAuthority reports whether a Secret has a file of a certificate authority, as for istiod. An incomplete one is an error,
// and not the same as none: with another authority, workloads would not trust each other.
func isAuthority(o *kube.Secret) bool {
	for _, name := range []string{ca.CertFile, ca.KeyFile, ca.ChainFile, ca.RootFile, "tls.crt", "tls.key"} {
		if _, ok := o.Data[name]; ok {
			return true
		}
	}
	return false
}

func (s *secretStore) contents(o *kube.Secret) *ca.Contents {
	f := ca.Files{}
	for name, as := range tlsNames {
		if b := o.Data[name]; len(b) > 0 {
			f[as] = b
		}
	}
	if chain := f[ca.CertFile]; len(chain) > 0 {
		f[ca.ChainFile] = chain // tls.crt has the chain, too
	}
	for _, name := range ca.FileNames {
		if b, ok := o.Data[name]; ok {
			f[name] = b
		}
	}
	if len(f[ca.RevokedFile]) == 0 {
		delete(f, ca.RevokedFile) // an empty value revokes nothing, as in Istio
	}
	_, generated := f[ca.OwnFile]
	return &ca.Contents{
		Files: f, Where: fmt.Sprintf("Secret %s/%s", s.namespace, o.Name), Own: generated || o.Name == ownSecret,
		Version: o.Name + "/" + o.Version,
	}
}

// Create implements ca.Store.
func (s *secretStore) Create(ctx context.Context, f ca.Files) error {
	return s.secrets.Create(ctx, &kube.Secret{Name: ownSecret, Type: ownSecretType, Data: f})
}

// Replace implements ca.Store.
func (s *secretStore) Replace(ctx context.Context, old *ca.Contents, f ca.Files) error {
	for _, name := range []string{givenSecret, ownSecret} {
		o, err := s.secrets.Get(ctx, name)
		if err != nil {
			return err
		}
		if o != nil && name+"/"+o.Version == old.Version {
			for k, v := range f {
				o.Data[k] = v
			}
			return s.secrets.Replace(ctx, o)
		}
	}
	return nil
}

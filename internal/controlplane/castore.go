package controlplane

import (
	"context"
	"fmt"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// Istio's names of the Secrets with a certificate authority: what an operator gives, and what
// is made where there is nothing.
const (
	givenSecret   = "cacerts"
	ownSecret     = "istio-ca-secret"
	ownSecretType = "istio.io/ca-root"
)

// secretStore is a ca.Store in Secrets of the root namespace. The authority alone uses it.
type secretStore struct {
	secrets   *kube.Secrets
	namespace string
	given     bool // the operator's is in force
}

// Place implements ca.Store.
func (s *secretStore) Place() string { return "Secrets of " + s.namespace }

// Read implements ca.Store: the operator's Secret goes before our own. Once it was there its
// absence is a mistake: with another root no workload would believe another.
func (s *secretStore) Read(ctx context.Context) (*ca.Contents, error) {
	switch o, err := s.secrets.Get(ctx, givenSecret); {
	case err != nil:
		return nil, err
	case o != nil && isAuthority(o):
		s.given = true
		return s.contents(o), nil
	case s.given:
		return nil, fmt.Errorf("the Secret %s/%s is gone, or has no %s any more: put it back, or start again to do without it", s.namespace, givenSecret, ca.KeyFile)
	}
	o, err := s.secrets.Get(ctx, ownSecret)
	if o == nil || err != nil {
		return nil, err
	}
	return s.contents(o), nil
}

// tlsNames are the names that Secrets of type kubernetes.io/tls have, as cert-manager makes them.
var tlsNames = map[string]string{"tls.crt": ca.CertFile, "tls.key": ca.KeyFile, "ca.crt": ca.RootFile}

// isAuthority tells a Secret with what is signed with from one with roots alone.
func isAuthority(o *kube.Secret) bool {
	return len(o.Data[ca.KeyFile]) > 0 || len(o.Data["tls.key"]) > 0
}

func (s *secretStore) contents(o *kube.Secret) *ca.Contents {
	f := ca.Files{}
	for name, as := range tlsNames {
		if b := o.Data[name]; len(b) > 0 {
			f[as] = b
		}
	}
	if chain := f[ca.CertFile]; len(chain) > 0 {
		f[ca.ChainFile] = chain // tls.crt has what follows the certificate, too
	}
	for _, name := range ca.FileNames {
		if b, ok := o.Data[name]; ok {
			f[name] = b
		}
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

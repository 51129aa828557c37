package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Secrets go to proxies whose certificate proves their identity, and come from the proxies' own namespace. Keys go only to
// service accounts that may read them. The account is therefore part of the group's key, in namespaces where some rule or
// Sidecar names a credential. A Secret that a proxy may not have does not exist for it, so that Envoy lets no call
// through. As in Istio, CAs of ConfigMaps are for all proxies that are configured to use them.

// SecretRef is the name of a secret, and what asks for it.
type SecretRef struct {
	Name string
	From *model.Origins
}

// SecretRefs makes references with the same origins.
func SecretRefs(names []string, from *model.Origins) []SecretRef {
	var out []SecretRef
	for _, name := range names {
		out = append(out, SecretRef{name, from})
	}
	return out
}

// SortSecretRefs sorts by name and origins, and drops duplicates.
func SortSecretRefs(list []SecretRef) []SecretRef {
	slices.SortFunc(list, func(a, b SecretRef) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), slices.CompareFunc(a.From.Keys(), b.From.Keys(), model.Key.Compare))
	})
	return slices.Compact(list)
}

// ClientSecrets are the names of the secrets that a cluster asks for, as translate writes them.
func ClientSecrets(t *model.ClientTLS) []string {
	if t == nil {
		return nil
	}
	var out []string
	if name := cmp.Or(t.CertificateName, t.CredentialName); t.Mode == model.TLSMutual && name != "" {
		out = append(out, model.CredentialURL(name))
	}
	if t.CredentialName != "" && !t.InsecureSkipVerify {
		out = append(out, model.CredentialURL(t.CredentialName)+model.SuffixCA)
	}
	return out
}

// ServerSecrets are the names of the secrets that a server asks for, as translate writes them.
func ServerSecrets(t *model.ServerTLS) []string {
	if !t.EndsTLS() {
		return nil
	}
	var out []string
	for _, name := range t.CredentialNames {
		out = append(out, model.CredentialURL(name))
	}
	if ca := t.CACredential(); ca != "" {
		out = append(out, t.CAResource())
	}
	return out
}

// IngressSecrets are the secrets that the Sidecar's own listeners ask for. Like all secrets they belong to the outbound
// group. Only a Sidecar of the workload's namespace counts: the author of the root namespace's Sidecar may not use Secrets
// of other namespaces.
func IngressSecrets(c *index.Client) []SecretRef {
	if c.Sidecar == nil || c.Sidecar.Namespace != c.Key.Namespace {
		return nil
	}
	var names []string
	for i := range c.Sidecar.Ingress {
		names = append(names, ServerSecrets(c.Sidecar.Ingress[i].TLS)...)
	}
	return SortSecretRefs(SecretRefs(names, model.OriginsOf(c.Sidecar.Key)))
}

// Secret is nil if there is no secret of the name that the clients may have. granted: a ReferenceGrant allows one of another
// namespace.
func Secret(r *index.Reader, name string, granted func(name string) bool) *ir.Secret {
	plain, isCA := strings.CutSuffix(name, model.SuffixCA)
	credential, ok := model.ParseCredential(plain)
	key, own := credential.In(r.Key.Namespace)
	switch {
	case ok && isCA && credential.Kind == model.KindConfigMap: // certificates, which are public
		return authorities(name, r.Secret(key))
	case !ok || r.Key.Account == "" || !own && !granted(plain):
		return nil
	case !own:
		return secretOfOthers(r, name, credential.Key(), isCA)
	case isCA:
		return authorities(name, secretOfCA(r, key))
	}
	return keyFor(name, r.Secret(key), r.Key.Account)
}

// secretOfOthers is one of another namespace. A second Secret for its CAs does not count.
func secretOfOthers(r *index.Reader, name string, key model.Key, isCA bool) *ir.Secret {
	if isCA {
		return authorities(name, r.Secret(key))
	}
	return keyFor(name, r.Secret(key), r.Key.Namespace+"/"+r.Key.Account)
}

// keyFor is a Secret with its key; nil: the account may not have it.
func keyFor(name string, secret *model.Secret, account string) *ir.Secret {
	if secret == nil || secret.Problem != "" || !secret.MayRead(account) {
		return nil
	}
	return &ir.Secret{Name: name, Certificate: secret.Certificate, PrivateKey: secret.PrivateKey, OCSPStaple: secret.OCSPStaple}
}

// secretOfCA is the Secret with a credential's CAs: a separate one, or that of the key if the API server has no separate
// one. If the separate one cannot be read, it might have other CAs, so that none count.
func secretOfCA(r *index.Reader, k model.Key) *model.Secret {
	own := k
	own.Name += model.SuffixCA
	mark := r.Mark()
	if secret := r.Secret(own); secret != nil && secret.CAProblem != model.NoSecret {
		return secret
	}
	r.Unread(mark)
	return r.Secret(k)
}

func authorities(name string, secret *model.Secret) *ir.Secret {
	if secret == nil || secret.CAProblem != "" {
		return nil
	}
	return &ir.Secret{Name: name, CA: secret.CA, CRL: secret.CRL}
}

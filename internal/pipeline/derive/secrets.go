package derive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// askForIngress counts the secrets that the Sidecar's own listeners ask for. They are of the
// outbound scope, as all secrets are, and of the Sidecar's namespace alone: the root namespace's
// Sidecar is for workloads whose Secrets are not its author's.
func (s *proxyGroup) askForIngress() {
	if s.Key.Inbound || s.Key.Names || s.Key.Extensions {
		return
	}
	var now []secretRef
	if s.Sidecar != nil && s.Sidecar.Namespace == s.Key.Namespace {
		now = sortSecrets(refsOf(ingressSecrets(s.Sidecar), model.OriginsOf(s.Sidecar.Key)))
	}
	was := s.ingress
	s.ingress = now
	s.refSecrets(was, now)
}

// ingressSecrets are sorted, each once.
func ingressSecrets(sidecar *model.Sidecar) []string {
	var out []string
	for i := range sidecar.Ingress {
		out = append(out, serverSecrets(sidecar.Ingress[i].TLS)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// secretsOf are the secrets that a cluster asks for, as translate spells them.
func secretsOf(t *model.ClientTLS) []string {
	if t == nil || t.CredentialName == "" {
		return nil
	}
	var out []string
	if t.Mode == model.TLSMutual {
		out = append(out, model.CredentialURL(t.CredentialName))
	}
	if !t.InsecureSkipVerify {
		out = append(out, model.CredentialURL(t.CredentialName)+model.SuffixCA)
	}
	return out
}

// diffSecrets counts which hosts' clusters ask for which secret.
func (s *proxyGroup) diffSecrets(old *hostState, now *hostResult) {
	s.refSecrets(old.secrets, now.secrets)
}

// refSecrets replaces what one host, the servers of a router, or a Sidecar's listeners ask for.
func (s *proxyGroup) refSecrets(old, now []secretRef) {
	if slices.Equal(old, now) {
		return
	}
	for _, ref := range now {
		index.CountIn(s.secretRefs, ref.name, ref.from, 1)
		s.mark(secretUnit(ref.name))
	}
	for _, ref := range old {
		if first, differs := index.CountIn(s.secretRefs, ref.name, ref.from, -1); first || differs {
			s.mark(secretUnit(ref.name))
		}
	}
}

// secretRef is the name of a secret, and what asks for it.
type secretRef struct {
	name string
	from *model.Origins
}

func refsOf(names []string, from *model.Origins) []secretRef {
	var out []secretRef
	for _, name := range names {
		out = append(out, secretRef{name, from})
	}
	return out
}

// sortSecrets sorts by name and origins, and drops what is there twice.
func sortSecrets(list []secretRef) []secretRef {
	slices.SortFunc(list, func(a, b secretRef) int {
		return cmp.Or(strings.Compare(a.name, b.name), slices.CompareFunc(a.from.Keys(), b.from.Keys(), model.Key.Compare))
	})
	return slices.Compact(list)
}

func (s *proxyGroup) deriveSecret(r *index.Reader, name string) {
	s.out.Secrets[name] = nil
	refs := s.secretRefs[name]
	if refs.Total() == 0 {
		return
	}
	if v := s.secret(r, name); v != nil {
		r.Used.AddAll(refs.Origins())
		v.Made = r.MadeSince(0)
		s.out.Secrets[name] = v
	}
}

// secret is nil where there is none that the scope's proxies may have.
func (s *proxyGroup) secret(r *index.Reader, name string) *ir.Secret {
	plain, isCA := strings.CutSuffix(name, model.SuffixCA)
	credential, ok := model.ParseCredential(plain)
	key, own := credential.In(s.Key.Namespace)
	switch {
	case ok && isCA && credential.Kind == model.KindConfigMap: // certificates that are no secrets
		return authorities(name, r.Secret(key))
	case !ok || s.Key.Account == "" || !own && !s.grantedSecret(plain):
		return nil
	case !own:
		return s.secretOfOthers(r, name, credential.Key(), isCA)
	case isCA:
		return authorities(name, secretOfCA(r, key))
	}
	return keyFor(name, r.Secret(key), s.Key.Account)
}

// secretOfOthers is one of another namespace, alone: there is none beside it that has CAs.
func (s *proxyGroup) secretOfOthers(r *index.Reader, name string, key model.Key, isCA bool) *ir.Secret {
	if isCA {
		return authorities(name, r.Secret(key))
	}
	return keyFor(name, r.Secret(key), s.Key.Namespace+"/"+s.Key.Account)
}

// keyFor is a Secret with its key; nil: the account may not have it.
func keyFor(name string, secret *model.Secret, account string) *ir.Secret {
	if secret == nil || secret.Problem != "" || !secret.MayRead(account) {
		return nil
	}
	return &ir.Secret{Name: name, Certificate: secret.Certificate, PrivateKey: secret.PrivateKey}
}

// secretOfCA is the Secret that has a credential's CAs: one of its own, or that of the key where the API
// server has no such one. One that cannot be read might have others, so that there are none then.
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

package convert

import (
	"slices"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// CaCredential checks the name of what has the CAs of clients.
func (c *Converter) CaCredential(at problem.Path, name string) {
	if !model.IsConfigMap(name) {
		c.ServerCredential(at, name)
		return
	}
	c.ConfigMapName(at, name)
}

// ConfigMapName checks the name of a ConfigMap with CAs; false: it is none.
func (c *Converter) ConfigMapName(at problem.Path, name string) bool {
	credential, ok := model.ParseCredential(name)
	if !ok || !IsName(credential.Name) || !IsName(credential.Namespace) {
		c.Errorf(code.InvalidName, at, "%q is not the name of a ConfigMap with CAs; write configmap://NAMESPACE/NAME", name)
		return false
	}
	return true
}

// ServerCredential checks the name of a Secret with a server's certificate and key.
func (c *Converter) ServerCredential(at problem.Path, name string) {
	if model.IsConfigMap(name) {
		c.Errorf(code.NotAllowedHere, at, "a ConfigMap has only CAs, but a certificate and its key are needed here; use a Secret")
		return
	}
	if credential, ok := model.ParseCredential(name); !ok || !IsName(credential.Name) {
		c.Errorf(code.InvalidName, at, "%q is not the name of a Secret; write the name of one in the proxy's namespace", name)
	}
}

// cipherSuites are those that Envoy knows, for versions before 1.3.
var cipherSuites = []string{
	"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
	"ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
	"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA",
}

// EcdhCurves are those that Envoy knows.
var EcdhCurves = []string{"P-256", "P-384", "P-521", "X25519", "X25519MLKEM768", "MLKEM1024"}

// CipherSuites returns the cipher suites that Envoy knows, and warns of the others.
func (c *Converter) CipherSuites(at problem.Path, list []string) []string {
	return c.KnownToEnvoy(at, list, "a cipher suite", cipherSuites)
}

// KnownToEnvoy leaves out what Envoy would refuse the listener or the cluster for.
func (c *Converter) KnownToEnvoy(at problem.Path, list []string, what string, known []string) []string {
	var out []string
	for i, s := range list {
		switch {
		case !slices.Contains(known, s):
			c.Warnf(code.UnknownValue, at.Index(i), "%q is not %s that Envoy knows, and is left out%s", s, what, spelling.DidYouMean(s, known))
		case slices.Contains(out, s):
			c.Warnf(code.ListedTwice, at.Index(i), "%q is listed twice; remove one", s)
		default:
			out = append(out, s)
		}
	}
	return out
}

package explain

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/moonsail/moonsail/internal/model"
)

// Content is a hash of an object without what its source adds to it. It is equal for a file and for the
// object that an API server made of the file. Annotations count if the mesh reads them, because they are
// decoded into fields.
func Content(o model.Object) string {
	b, err := json.Marshal(asWritten(o))
	var fields any
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		return ""
	}
	strip(fields)
	if b, err = json.Marshal(fields); err != nil {
		return ""
	}
	if s, ok := o.(*model.Secret); ok {
		b = append(b, keyDigest(s)...)
	}
	return strconv.FormatUint(xxhash.Sum64(b), 16)
}

// digestRounds make it expensive to guess a password from a Content, which debug pages and peers see. A digest takes a few
// milliseconds.
const digestRounds = 10_000

// keyDigest returns a digest of what JSON leaves out of a Secret; nil: it has no key and no login.
func keyDigest(s *model.Secret) []byte {
	secret := s.PrivateKey.PEM() + "\x00" + s.Login.PEM()
	if len(secret) == 1 {
		return nil
	}
	salt := sha256.Sum256([]byte(s.Key.String()))
	digest, err := pbkdf2.Key(sha256.New, secret, salt[:], digestRounds, sha256.Size)
	if err != nil {
		return nil // FIPS 140 mode refuses passwords of less than 14 bytes
	}
	return digest
}

// asWritten returns an object without what an API server, its controllers or the control plane fill in.
func asWritten(o model.Object) model.Object {
	switch o := o.(type) {
	case *model.Service:
		return serviceAsWritten(o)
	case *model.ServiceEntry:
		out := *o
		out.Status = nil
		return &out
	case *model.Secret:
		out := *o
		out.Readers = nil
		return &out
	}
	return o
}

// serviceAsWritten returns a Kubernetes Service without its addresses and those of its load balancer, without the families of
// addresses, and without target ports that equal the ports.
func serviceAsWritten(s *model.Service) *model.Service {
	out := *s
	out.Addresses, out.Outside, out.IPv6First = nil, nil, false
	out.Ports = slices.Clone(s.Ports)
	for i := range out.Ports {
		if p := &out.Ports[i]; p.TargetPort == p.Number {
			p.TargetPort = 0
		}
	}
	return &out
}

// InForce reports whether an object of a file is the one that a control plane has, by its Explanation.
// Versions of files are hashes of their whole content.
func InForce(o model.Object, e *Explanation) bool {
	m := o.Metadata()
	if m.ResourceVersion != "" && m.ResourceVersion == e.ResourceVersion {
		return true
	}
	if e.Origin != fromKubernetes {
		return false
	}
	if e.Content == Content(o) {
		return true
	}
	secret, ok := o.(*model.Secret)
	if !ok {
		return false
	}
	// A control plane leaves out the key of a Secret that no proxy asks for.
	keyless := *secret
	keyless.Certificate, keyless.PrivateKey, keyless.Login = "", model.PrivateKey{}, model.PrivateKey{}
	return e.Content == Content(&keyless)
}

// fromKubernetes is the origin of objects of an API server.
const fromKubernetes = "kubernetes"

// sourceFields are the fields that depend on where an object comes from: those of model.Meta, and what an EndpointSlice
// records about its source.
var sourceFields = []string{"Annotations", "ResourceVersion", "Created", "Origin", "PodsListed"}

// strip removes the metadata, also from objects inside of objects.
func strip(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, meta := v["ResourceVersion"]; meta {
			for _, f := range sourceFields {
				delete(v, f)
			}
		}
		for _, inner := range v {
			strip(inner)
		}
	case []any:
		for _, inner := range v {
			strip(inner)
		}
	}
}

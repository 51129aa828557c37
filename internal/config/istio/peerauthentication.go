package istio

import (
	"maps"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// PeerAuthentication decodes a PeerAuthentication.
func (d Decoder) PeerAuthentication(o *securityv1.PeerAuthentication) (*model.PeerAuthentication, Problems) {
	c := d.start(model.KindPeerAuthentication, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	p := &model.PeerAuthentication{Meta: c.meta, Mode: mtlsMode(spec.Mtls)}
	if spec.Selector != nil {
		p.Selector = c.selector(at.f("selector"), "matchLabels", spec.Selector.MatchLabels)
	}
	p.Ports = c.mtlsPorts(at.f("portLevelMtls"), spec.PortLevelMtls)
	if len(p.Selector) == 0 && len(p.Ports) > 0 {
		c.errorf(at.f("portLevelMtls"), "needs a selector: ports are those of workloads; name their labels in selector, or remove portLevelMtls")
	}
	return p, c.list
}

func (c *conv) mtlsPorts(at path, ports map[uint32]*security.PeerAuthentication_MutualTLS) map[uint32]model.MTLSMode {
	if len(ports) == 0 {
		return nil
	}
	out := make(map[uint32]model.MTLSMode, len(ports))
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		c.checkPort(at, port)
		out[port] = mtlsMode(ports[port])
	}
	return out
}

func mtlsMode(m *security.PeerAuthentication_MutualTLS) model.MTLSMode {
	if m.GetMode() == security.PeerAuthentication_MutualTLS_UNSET {
		return model.MTLSUnset
	}
	return model.MTLSMode(m.GetMode().String())
}

// meshIdentity converts what the mesh's configuration says of identities and mutual TLS.
func (c *conv) meshIdentity(at path, said *meshconfig.MeshConfig, given map[string]bool, out *model.MeshConfig) {
	if said.TrustDomain != "" {
		c.trustDomain(at.f("trustDomain"), said.TrustDomain)
		out.TrustDomain = &said.TrustDomain
	}
	for i, alias := range said.TrustDomainAliases {
		c.trustDomain(at.f("trustDomainAliases").i(i), alias)
	}
	out.TrustDomainAliases = said.TrustDomainAliases
	if auto := said.EnableAutoMtls; auto != nil {
		out.AutoMTLS = &auto.Value
	}
	if given["h2UpgradePolicy"] {
		upgrade := model.H2UpgradeNever
		if said.H2UpgradePolicy == meshconfig.MeshConfig_UPGRADE {
			upgrade = model.H2UpgradeAlways
		}
		out.MeshHTTP2 = &upgrade
	}
}

// meshMTLS is what servers of the mesh take. onlyTLS13 is nil where nothing is said of versions.
func (c *conv) meshMTLS(at path, t *meshconfig.MeshConfig_TLSConfig) (onlyTLS13 *bool, suites []string) {
	suites = c.cipherSuites(at.f("cipherSuites"), t.GetCipherSuites())
	if len(t.GetEcdhCurves()) > 0 {
		c.warnf(at.f("ecdhCurves"), "has no effect on mutual TLS of the mesh, as in Istio; remove it")
	}
	if t.GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLS_AUTO {
		return nil, suites
	}
	only := t.GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3
	return &only, suites
}

// tlsDefaults is nil where nothing is said.
func (c *conv) tlsDefaults(at path, t *meshconfig.MeshConfig_TLSConfig) *model.TLSDefaults {
	if t == nil {
		return nil
	}
	return &model.TLSDefaults{
		MinVersion:   tlsVersion(t.MinProtocolVersion),
		CipherSuites: c.cipherSuites(at.f("cipherSuites"), t.CipherSuites),
		ECDHCurves:   c.knownToEnvoy(at.f("ecdhCurves"), t.EcdhCurves, "a curve", ecdhCurves),
	}
}

// trustDomain checks a trust domain as a part of SPIFFE ids.
func (c *conv) trustDomain(at path, name string) {
	if err := (model.Identity{TrustDomain: name, Namespace: "x", ServiceAccount: "x"}).Check(); err != nil {
		c.errorf(at, "%v", err)
	}
}

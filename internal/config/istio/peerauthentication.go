package istio

import (
	"maps"
	"slices"

	meshconfig "istio.io/api/mesh/v1alpha1"
	security "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// PeerAuthentication decodes a PeerAuthentication.
func PeerAuthentication(in convert.Cluster, o *securityv1.PeerAuthentication) (*model.PeerAuthentication, problem.List) {
	c := meshConv{convert.Start(in, model.KindPeerAuthentication, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	p := &model.PeerAuthentication{Meta: c.Meta, Mode: mtlsMode(spec.Mtls)}
	if spec.Selector != nil {
		p.Selector = c.Selector(at.Field("selector"), "matchLabels", spec.Selector.MatchLabels)
	}
	p.Ports = c.mtlsPorts(at.Field("portLevelMtls"), spec.PortLevelMtls)
	if len(p.Selector) == 0 && len(p.Ports) > 0 {
		c.Errorf(code.MissingField, at.Field("portLevelMtls"), "needs a selector: ports are those of workloads; name their labels in selector, or remove portLevelMtls")
	}
	return p, c.Problems
}

func (c meshConv) mtlsPorts(at problem.Path, ports map[uint32]*security.PeerAuthentication_MutualTLS) map[uint32]model.MTLSMode {
	if len(ports) == 0 {
		return nil
	}
	out := make(map[uint32]model.MTLSMode, len(ports))
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		c.CheckPort(at, port)
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

// meshIdentity converts the mesh's settings of identities and mutual TLS.
func (c meshConv) meshIdentity(at problem.Path, settings *meshconfig.MeshConfig, given map[string]bool, out *model.MeshConfig) {
	if settings.TrustDomain != "" {
		c.trustDomain(at.Field("trustDomain"), settings.TrustDomain)
		out.TrustDomain = &settings.TrustDomain
	}
	for i, alias := range settings.TrustDomainAliases {
		c.trustDomain(at.Field("trustDomainAliases").Index(i), alias)
	}
	out.TrustDomainAliases = settings.TrustDomainAliases
	if auto := settings.EnableAutoMtls; auto != nil {
		out.AutoMTLS = &auto.Value
	}
	if given["h2UpgradePolicy"] {
		upgrade := model.H2UpgradeNever
		if settings.H2UpgradePolicy == meshconfig.MeshConfig_UPGRADE {
			upgrade = model.H2UpgradeAlways
		}
		out.MeshHTTP2 = &upgrade
	}
}

// meshMTLS is what servers of the mesh take. onlyTLS13 is nil where nothing is settings of versions.
func (c meshConv) meshMTLS(at problem.Path, t *meshconfig.MeshConfig_TLSConfig) (onlyTLS13 *bool, suites []string) {
	suites = c.CipherSuites(at.Field("cipherSuites"), t.GetCipherSuites())
	if len(t.GetEcdhCurves()) > 0 {
		c.Warnf(code.NoEffect, at.Field("ecdhCurves"), "has no effect on mutual TLS of the mesh, as in Istio; remove it")
	}
	if t.GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLS_AUTO {
		return nil, suites
	}
	only := t.GetMinProtocolVersion() == meshconfig.MeshConfig_TLSConfig_TLSV1_3
	return &only, suites
}

// tlsDefaults is nil where nothing is settings.
func (c meshConv) tlsDefaults(at problem.Path, t *meshconfig.MeshConfig_TLSConfig) *model.TLSDefaults {
	if t == nil {
		return nil
	}
	return &model.TLSDefaults{
		MinVersion:   tlsVersion(t.MinProtocolVersion),
		CipherSuites: c.CipherSuites(at.Field("cipherSuites"), t.CipherSuites),
		ECDHCurves:   c.KnownToEnvoy(at.Field("ecdhCurves"), t.EcdhCurves, "a curve", convert.EcdhCurves),
	}
}

// trustDomain checks a trust domain as a part of SPIFFE ids.
func (c meshConv) trustDomain(at problem.Path, name string) {
	if err := (model.Identity{TrustDomain: name, Namespace: "x", ServiceAccount: "x"}).Check(); err != nil {
		c.Errorf(code.InvalidNumber, at, "%v", err)
	}
}

package istio

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// DestinationRule decodes a DestinationRule.
func DestinationRule(in convert.Cluster, o *networkingv1.DestinationRule) (*model.DestinationRule, problem.List) {
	c := destinationConv{convert.Start(in, model.KindDestinationRule, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	r := &model.DestinationRule{Meta: c.Meta, Visibility: c.ExportTo(at.Field("exportTo"), spec.ExportTo, false)}
	if c.CheckHost(at.Field("host"), spec.Host, true) {
		r.Host = c.Host(spec.Host)
	}
	r.Policy, r.Ports = c.trafficPolicy(at.Field("trafficPolicy"), spec.TrafficPolicy)
	if sel := spec.WorkloadSelector; sel != nil {
		r.WorkloadSelector = c.Selector(at.Field("workloadSelector"), "matchLabels", sel.MatchLabels)
		for i, e := range spec.ExportTo {
			if e != convert.ExportHere && e != c.Meta.Namespace {
				c.Errorf(code.NotAllowedHere, at.Field("exportTo").Index(i), "a rule with a workloadSelector is for its own namespace; use \".\", or remove exportTo")
			}
		}
	}
	r.Subsets = c.subsets(at.Field("subsets"), spec.Subsets)
	if len(r.WorkloadSelector) == 0 && model.NeedsSecrets(r.Credentials()) {
		c.Warnf(code.MissingField, at.Field("workloadSelector"), "is missing, so credentialName has no effect at sidecars: they show no client certificate, and verify servers against the system's CAs; select the workloads that may have the secret")
	}
	return r, c.Problems
}

func (c destinationConv) subsets(at problem.Path, list []*networking.Subset) []model.Subset {
	var out []model.Subset
	seen := map[string]bool{}
	for i, s := range list {
		at := at.Index(i)
		switch {
		case s.Name == "":
			c.Errorf(code.MissingField, at.Field("name"), "is missing; name the subset, such as \"v1\"")
		case !convert.IsLabel(s.Name):
			c.Errorf(code.InvalidName, at.Field("name"), "%q is not a subset's name: use at most 63 letters, digits and '-'", s.Name)
		case seen[s.Name]:
			c.Errorf(code.ListedTwice, at.Field("name"), "%q is the name of two subsets; rename one", s.Name)
		}
		seen[s.Name] = true
		c.Labels(at.Field("labels"), s.Labels)
		if len(s.Labels) == 0 {
			c.Add(code.MissingField, problem.SeverityInfo, at.Field("labels"), "are missing, so the subset is the whole service; unless that is meant, name labels of its workloads")
		}
		policy, ports := c.trafficPolicy(at.Field("trafficPolicy"), s.TrafficPolicy)
		out = append(out, model.Subset{Name: s.Name, Labels: s.Labels, Policy: policy, Ports: ports})
	}
	return out
}

func (c destinationConv) trafficPolicy(at problem.Path, p *networking.TrafficPolicy) (model.TrafficPolicy, map[uint32]model.TrafficPolicy) {
	var out model.TrafficPolicy
	if p == nil {
		return out, nil
	}
	if !setsParts(p) && p.PortLevelSettings == nil && p.Tunnel == nil && p.ProxyProtocol == nil && p.RetryBudget == nil {
		c.Errorf(code.EmptyValue, at, "is empty; set at least one of loadBalancer, connectionPool, outlierDetection, tls and portLevelSettings, or remove it")
	}
	out = c.policyParts(at, p)
	out.Tunnel = c.tunnel(at.Field("tunnel"), p.Tunnel)
	if v := p.ProxyProtocol; v != nil {
		out.ProxyProtocol = uint32(v.Version) + 1
		if p.Tunnel != nil {
			c.Errorf(code.ExclusiveFields, at.Field("proxyProtocol"), "cannot be combined with tunnel; remove one of the two")
		}
	}
	out.RetryBudget = c.retryBudget(at.Field("retryBudget"), p.RetryBudget)
	return out, c.portPolicies(at.Field("portLevelSettings"), p.PortLevelSettings)
}

// policyParts are the fields that policies of whole services and of single ports have in common.
type policyParts interface {
	GetLoadBalancer() *networking.LoadBalancerSettings
	GetConnectionPool() *networking.ConnectionPoolSettings
	GetOutlierDetection() *networking.OutlierDetection
	GetTls() *networking.ClientTLSSettings
}

func setsParts(p policyParts) bool {
	return p.GetLoadBalancer() != nil || p.GetConnectionPool() != nil || p.GetOutlierDetection() != nil || p.GetTls() != nil
}

func (c destinationConv) policyParts(at problem.Path, p policyParts) model.TrafficPolicy {
	return model.TrafficPolicy{
		LoadBalancer:     c.loadBalancer(at.Field("loadBalancer"), p.GetLoadBalancer(), p.GetOutlierDetection() != nil),
		ConnectionPool:   c.connectionPool(at.Field("connectionPool"), p.GetConnectionPool()),
		OutlierDetection: c.outlierDetection(at.Field("outlierDetection"), p.GetOutlierDetection()),
		TLS:              c.clientTLS(at.Field("tls"), p.GetTls()),
	}
}

func (c destinationConv) portPolicies(at problem.Path, list []*networking.TrafficPolicy_PortTrafficPolicy) map[uint32]model.TrafficPolicy {
	if len(list) == 0 {
		return nil
	}
	out := make(map[uint32]model.TrafficPolicy, len(list))
	for i, p := range list {
		at := at.Index(i)
		number := p.GetPort().GetNumber()
		if p.Port == nil {
			c.Errorf(code.MissingField, at.Field("port"), "is missing; set the service's port, as port: {number: 80}")
		} else {
			c.CheckPort(at.Field("port").Field("number"), number)
		}
		if _, twice := out[number]; twice {
			c.Warnf(code.ListedTwice, at.Field("port").Field("number"), "port %d is listed twice, and the last entry counts; merge the two", number)
		}
		if !setsParts(p) {
			c.Errorf(code.EmptyValue, at, "is empty; set at least one of loadBalancer, connectionPool, outlierDetection and tls")
		}
		out[number] = c.policyParts(at, p)
	}
	return out
}

func (c destinationConv) tunnel(at problem.Path, t *networking.TrafficPolicy_TunnelSettings) *model.Tunnel {
	if t == nil {
		return nil
	}
	if t.Protocol != "" && t.Protocol != "CONNECT" && t.Protocol != "POST" {
		c.Errorf(code.UnknownValue, at.Field("protocol"), "%q cannot be used; use CONNECT or POST", t.Protocol)
	}
	if !model.IsIP(t.TargetHost) {
		c.CheckHost(at.Field("targetHost"), t.TargetHost, false)
	}
	c.CheckPort(at.Field("targetPort"), t.TargetPort)
	return &model.Tunnel{Post: t.Protocol == "POST", TargetHost: t.TargetHost, TargetPort: t.TargetPort}
}

// defaultRetryPercent is Envoy's retry budget where none is given.
const defaultRetryPercent = 20

func (c destinationConv) retryBudget(at problem.Path, b *networking.TrafficPolicy_RetryBudget) *model.RetryBudget {
	if b == nil {
		return nil
	}
	out := &model.RetryBudget{Percent: defaultRetryPercent, MinConcurrency: b.MinRetryConcurrency}
	if b.Percent != nil {
		out.Percent = c.Percent(at.Field("percent"), b.Percent.Value)
	}
	if b.BudgetInterval.AsDuration() != 0 { // 0 is the default: only what is under way counts
		out.Interval = c.Duration(at.Field("budgetInterval"), b.BudgetInterval)
	}
	return out
}

func (c destinationConv) clientTLS(at problem.Path, t *networking.ClientTLSSettings) *model.ClientTLS {
	if t == nil {
		return nil
	}
	c.tlsFiles(at, t)
	if len(t.Sni) > convert.MaxDomain {
		c.Errorf(code.InvalidText, at.Field("sni"), "is longer than %d characters", convert.MaxDomain)
	} else if t.Sni != "" && convert.HostError(t.Sni, false) != "" {
		c.Warnf(code.InvalidHost, at.Field("sni"), "%q is not a host name, which servers expect as SNI; correct it", t.Sni)
	}
	return &model.ClientTLS{
		Mode: model.TLSMode(t.Mode.String()), ClientCertificate: t.ClientCertificate,
		PrivateKey: t.PrivateKey, CACertificates: t.CaCertificates, CRL: t.CaCrl,
		CredentialName: t.CredentialName, SubjectAltNames: t.SubjectAltNames, SNI: t.Sni,
		InsecureSkipVerify: t.InsecureSkipVerify.GetValue(),
	}
}

// credential checks the name of a Secret.
func (c destinationConv) credential(at problem.Path, t *networking.ClientTLSSettings) {
	credential, ok := model.ParseCredential(t.CredentialName)
	_, own := credential.In(c.Meta.Namespace)
	switch {
	case model.IsConfigMap(t.CredentialName):
		c.configMapCredential(at, t, credential)
	case !ok || !convert.IsName(credential.Name):
		c.Errorf(code.InvalidName, at, "%q is not the name of a Secret; write its name, or kubernetes://NAME", t.CredentialName)
	case !own:
		c.Errorf(code.NotAllowedHere, at, "the Secret is of namespace %s, and workloads get only Secrets of their own namespace; copy it to %s", credential.Namespace, c.Meta.Namespace)
	case t.Mode == networking.ClientTLSSettings_MUTUAL && strings.HasSuffix(credential.Name, model.SuffixCA):
		c.Errorf(code.NotAllowedHere, at, "a name that ends with %s is that of a Secret of CAs, without a key; name the other one", model.SuffixCA)
	}
}

// configMapCredential checks the name of a ConfigMap with the CAs of servers. Every client of the servers receives
// it, so it must be in the rule's namespace, as in Istio.
func (c destinationConv) configMapCredential(at problem.Path, t *networking.ClientTLSSettings, credential model.Credential) {
	switch {
	case !c.ConfigMapName(at, t.CredentialName):
	case credential.Namespace != c.Meta.Namespace:
		c.Errorf(code.NotAllowedHere, at, "the ConfigMap is of namespace %s, and a rule can name only ConfigMaps of the namespace of the rule; copy it to %s", credential.Namespace, c.Meta.Namespace)
	case t.Mode == networking.ClientTLSSettings_MUTUAL:
		c.Errorf(code.NotAllowedHere, at, "a ConfigMap has only CAs, and MUTUAL needs a certificate with its key; use a Secret, or mode SIMPLE")
	}
}

// tlsFiles checks that the mode has what it needs, and nothing that contradicts it.
func (c destinationConv) tlsFiles(at problem.Path, t *networking.ClientTLSSettings) {
	files := t.ClientCertificate != "" || t.PrivateKey != "" || t.CaCertificates != "" || t.CaCrl != ""
	verifies := t.Mode == networking.ClientTLSSettings_SIMPLE || t.Mode == networking.ClientTLSSettings_MUTUAL
	switch {
	case verifies && t.CredentialName != "":
		if files {
			c.Errorf(code.ExclusiveFields, at.Field("credentialName"), "cannot be combined with files of certificates; remove one of the two")
		}
	case t.Mode == networking.ClientTLSSettings_MUTUAL:
		if t.ClientCertificate == "" {
			c.Errorf(code.MissingField, at.Field("clientCertificate"), "is missing; MUTUAL needs the file of the client's certificate, or credentialName")
		}
		if t.PrivateKey == "" {
			c.Errorf(code.MissingField, at.Field("privateKey"), "is missing; MUTUAL needs the file of the client's key, or credentialName")
		}
	case t.Mode == networking.ClientTLSSettings_ISTIO_MUTUAL && (files || t.CredentialName != ""):
		c.Warnf(code.NoEffect, at, "ISTIO_MUTUAL uses the mesh's own certificates, so the others have no effect; remove them, or use MUTUAL")
	case t.Mode == networking.ClientTLSSettings_DISABLE && (files || t.CredentialName != ""):
		c.Warnf(code.NoEffect, at, "mode is DISABLE, so the certificates have no effect; set mode to SIMPLE or MUTUAL")
	}
	if t.InsecureSkipVerify.GetValue() && verifies && (t.CaCertificates != "" || len(t.SubjectAltNames) > 0) {
		c.Errorf(code.ExclusiveFields, at.Field("insecureSkipVerify"), "contradicts caCertificates and subjectAltNames; remove one or the other")
	}
	if t.CredentialName != "" && verifies {
		c.credential(at.Field("credentialName"), t)
	}
}

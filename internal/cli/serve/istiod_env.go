package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/moonsail/moonsail/internal/cli/istioenv"
	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// istiodVariable is an environment variable of istiod.
type istiodVariable struct {
	name string
	// apply sets the option and describes the effect. If the effect is empty, the variable has none here, because of why.
	apply func(value string, o *controlplane.Options) (effect string, err error)
	why   string
	// refused: the control plane does not start if the variable is set.
	refused bool
}

// defaultDebounceMax is istiod's default of PILOT_DEBOUNCE_MAX.
const defaultDebounceMax = 10 * time.Second

// mappedBits is the length of the prefix of IPv4-mapped addresses, ::ffff:0:0/96.
const mappedBits = 96

const noDebounce = "PILOT_DEBOUNCE_AFTER is not set, so no event waits"

// istiodVariables lists the variables with which operators tune istiod, except those that set flags (istiodFlags), and
// those that never have an effect (package istioenv). Their order matters: PILOT_DEBOUNCE_AFTER comes
// before the variables that depend on it.
var istiodVariables = []istiodVariable{
	{name: "PILOT_DEBOUNCE_AFTER", apply: func(v string, o *controlplane.Options) (string, error) {
		d, err := nonNegative(v)
		o.Debounce.After, o.Debounce.Max = d, defaultDebounceMax
		return fmt.Sprintf("events wait until none has arrived for %s; by default no event waits, and events that arrive while a batch is processed form the next one", d), err
	}},
	{name: "PILOT_DEBOUNCE_MAX", apply: func(v string, o *controlplane.Options) (string, error) {
		d, err := nonNegative(v)
		if o.Debounce.After == 0 {
			return "", err
		}
		o.Debounce.Max = d
		return fmt.Sprintf("no event waits longer than %s from its arrival, including the time while a batch is processed", d), err
	}, why: noDebounce},
	{name: "PILOT_ENABLE_EDS_DEBOUNCE", apply: func(v string, o *controlplane.Options) (string, error) {
		wait, err := strconv.ParseBool(v)
		if o.Debounce.After == 0 {
			return "", err
		}
		o.Debounce.EndpointsPass = !wait
		if wait {
			return "endpoints wait like other events", err
		}
		return "endpoints do not wait; events that wait are processed with them", err
	}, why: noDebounce},
	{name: "PILOT_PUSH_THROTTLE", apply: func(v string, o *controlplane.Options) (string, error) {
		n, err := strconv.ParseUint(v, 10, 31)
		if err == nil && n == 0 {
			err = errors.New("nothing would be pushed: use 1 or more")
		}
		o.Senders = min(int(n), runtime.GOMAXPROCS(0))
		return fmt.Sprintf("pushes at the same time: at most %d; there are never more than CPUs, since no push waits for its proxy", o.Senders), err
	}},
	{name: "PILOT_ENABLE_IP_AUTOALLOCATE", apply: func(v string, o *controlplane.Options) (string, error) {
		on, err := strconv.ParseBool(v)
		o.Mesh.AutoAddresses.Off = !on
		if on {
			return "ServiceEntries without addresses get addresses, for sidecars that capture DNS; this is the default", err
		}
		return "ServiceEntries without addresses get none, except for proxies with DNS_AUTO_ALLOCATE; no addresses are written to statuses", err
	}},
	{name: "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", apply: func(v string, o *controlplane.Options) (effect string, err error) {
		o.Mesh.AutoAddresses.V4, err = parsePrefix(v, 32)
		return "ServiceEntries without addresses get one from " + v, err
	}},
	{name: "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", apply: func(v string, o *controlplane.Options) (effect string, err error) {
		o.Mesh.AutoAddresses.V6, err = parsePrefix(v, 128)
		return "ServiceEntries without addresses get one from " + v, err
	}},
	{name: "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", apply: func(v string, o *controlplane.Options) (string, error) {
		on, err := strconv.ParseBool(v)
		if on {
			return "", err
		}
		o.DeployGateways = false
		return "Gateways of the Gateway API are not deployed; existing Deployments stay", err
	}, why: "--deploy-gateways decides"},
	{name: "PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.SeveralAuthorizers },
		"CUSTOM policies of one workload may name different providers, and each is asked",
		"calls that match CUSTOM policies of a workload are refused if the policies name different providers; this is the default")},
	{name: "PILOT_SKIP_VALIDATE_TRUST_DOMAIN", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.AnyTrustDomain },
		"workloads accept callers of every trust domain that their roots verify, for example a federated one; in AuthorizationPolicies, namespaces and serviceAccounts match every trust domain: add trustDomains",
		"workloads accept callers of the mesh's trust domain and its aliases; this is the default")},
	{name: "PILOT_SCOPE_GATEWAY_TO_NAMESPACE", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.ScopeGatewayToNamespace },
		"Istio's Gateways are only for routers of their namespace, and Ingresses for those of the root namespace",
		"Istio's Gateways are for routers of all namespaces; this is the default")},
	{name: "PILOT_ENABLE_STRICT_GATEWAY_MERGING", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.StrictGatewayMerging },
		"routers that are deployed for a Gateway of the Gateway API serve Istio's Gateways of their namespace only; this is the default",
		"routers that are deployed for a Gateway of the Gateway API serve Istio's Gateways of all namespaces, which may name Secrets of the routers' namespace")},
	{name: "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.GatewayClustersOfRoutes },
		"gateways get the clusters of services that their routes, authorizers and collectors use, but not of those that only an EnvoyFilter names",
		"gateways get the clusters of all services that they see; this is the default")},
	{name: "PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.BalanceHeadless },
		"sidecars balance requests to headless services over their Pods, also requests to the name of one Pod; connections of other protocols go to their Pod",
		"sidecars send requests to headless services to the Pod of the connection; this is the default")},
	{name: "PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.AbsoluteFQDN },
		"hosts of requests may end with a dot; this is the default",
		"requests whose host ends with a dot are for an unknown host")},
	{name: "PILOT_HTTP10", apply: meshSwitch(func(m *model.Mesh) *bool { return &m.HTTP10 },
		"sidecars and gateways accept HTTP/1.0",
		"sidecars and gateways answer 426 to HTTP/1.0, except those with ISTIO_META_HTTP10=1; this is the default")},
	{name: "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT", apply: func(v string, o *controlplane.Options) (effect string, err error) {
		o.Mesh.HandshakeTimeout, err = nonNegative(v)
		if o.Mesh.HandshakeTimeout == 0 {
			return "gateways wait without a limit for TLS handshakes, so that slow clients can exhaust their memory", err
		}
		return "gateways close connections whose TLS handshake takes longer than " + v, err
	}},
	{name: "PILOT_TRACE_SAMPLING", apply: func(v string, o *controlplane.Options) (string, error) {
		percent, err := strconv.ParseFloat(v, 64)
		if err == nil && !(percent >= 0 && percent <= 100) {
			err = errors.New("not a percentage: use 0 to 100")
		}
		o.Mesh.Telemetry.BaseSampling = percent
		return fmt.Sprintf("%g %% of requests are traced, unless the mesh's configuration, a Telemetry or a Pod sets another share", percent), err
	}},
	{name: "BLOCKED_CIDRS_IN_JWKS_URIS", apply: func(v string, o *controlplane.Options) (string, error) {
		var err error
		o.FetchBlocked, err = parsePrefixes(v)
		return "jwksUri of these addresses is not fetched: " + v + "; link-local addresses and those of cloud metadata services never are", err
	}},
	{name: "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", apply: func(v string, o *controlplane.Options) (string, error) {
		d, err := time.ParseDuration(v)
		if err == nil && d < time.Minute {
			err = errors.New("shorter than a minute, which is too often for servers of keys: use 1m or more, for example 20m")
		}
		o.KeyRefresh = d
		return "keys of jwksUri are fetched every " + v, err
	}},
	{name: "COMPLIANCE_POLICY", refused: true, why: "the policy is not enforced, so that proxies might use what it forbids: unset the variable, and restrict TLS by meshMTLS and tlsDefaults of MeshConfig"},
	{name: "ENABLE_CA_SERVER", apply: func(v string, o *controlplane.Options) (string, error) {
		on, err := strconv.ParseBool(v)
		if err == nil && !on && o.Identity.Addr != "" && o.Identity.External == (controlplane.ExternalAuthority{}) {
			err = errors.New("the control plane then needs a certificate of another authority: give --xds-cert, --xds-key and --xds-root-cert, or --workload-api")
		}
		return "", err
	}, why: "--xds-cert or --workload-api decides whether the control plane issues certificates"},
}

// meshSwitch applies a variable that sets a field of the mesh to true or false, with the effect of each.
func meshSwitch(field func(*model.Mesh) *bool, whenTrue, whenFalse string) func(string, *controlplane.Options) (string, error) {
	return func(v string, o *controlplane.Options) (string, error) {
		on, err := strconv.ParseBool(v)
		*field(o.Mesh) = on
		if on {
			return whenTrue, err
		}
		return whenFalse, err
	}
}

// istiodFlags are the flags that istiod's variables set, unless the command line or Moonsail's variable does.
var istiodFlags = map[string]string{
	"max-workload-cert-ttl": "MAX_WORKLOAD_CERT_TTL",
	"workload-cert-ttl":     "DEFAULT_WORKLOAD_CERT_TTL",
	certNamesFlag:           "ISTIOD_CUSTOM_HOST",
}

const certNamesFlag = "xds-cert-names"

// parsePrefixes parses address ranges that are separated by commas. Ranges of IPv4-mapped addresses become IPv4 ranges, as
// which addresses are compared.
func parsePrefixes(v string) (out []netip.Prefix, err error) {
	for text := range strings.SplitSeq(v, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range: use a form like 10.0.0.0/8", text)
		}
		if p.Addr().Is4In6() {
			if p.Bits() < mappedBits {
				return nil, fmt.Errorf("%q has more than IPv4 addresses: use a form like 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// parsePrefix parses an address range of a family whose addresses have so many bits.
func parsePrefix(v string, bits int) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	switch {
	case err != nil:
		return p, errors.New("not an address range: use a form like 240.240.0.0/16 or 2001:2::/48")
	case p.Addr().BitLen() != bits:
		return p, errors.New("wrong IP family: use the other variable")
	case p.Bits() > bits-2:
		return p, errors.New("the range is too small: its first and last address are never allocated")
	}
	return p.Masked(), nil
}

func nonNegative(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err == nil && d < 0 {
		err = errors.New("negative duration")
	}
	return d, err
}

// program is what the variables are of, in logs.
const program = "istiod"

// applyIstiodVariables applies the variables that are set, and logs the effect of each, or why it has none. Those of flags
// have been applied.
func applyIstiodVariables(o *controlplane.Options, fs *pflag.FlagSet, lookup func(string) (string, bool), log *slog.Logger) error {
	logEffect := func(name, value, effect string) {
		log.Info("variable of "+program+" is honoured", "variable", name, "value", value, "effect", effect)
	}
	for _, flag := range slices.Sorted(maps.Keys(istiodFlags)) {
		name, f := istiodFlags[flag], fs.Lookup(flag)
		if terminal.SetBy(f) != name {
			continue
		}
		value, _ := lookup(name)
		if flag == certNamesFlag && len(o.Identity.Names) == 0 {
			istioenv.WithoutEffect(log, program, name, value, "the control plane issues no certificate for its xDS port: --xds-addr is empty, or --xds-cert or --workload-api gives the certificate")
			continue
		}
		logEffect(name, value, "sets --"+flag)
	}
	for _, s := range istiodVariables {
		v, ok := lookup(s.name)
		if !ok || v == "" {
			continue
		}
		if s.refused {
			return terminal.UsageError{Err: fmt.Errorf("environment variable %s=%s: %s", s.name, v, s.why)}
		}
		effect, err := s.apply(v, o)
		if err != nil {
			return terminal.UsageError{Err: fmt.Errorf("environment variable %s=%s: %w", s.name, v, err)}
		}
		if effect != "" {
			logEffect(s.name, v, effect)
		} else {
			istioenv.WithoutEffect(log, program, s.name, v, s.why)
		}
	}
	istioenv.Warn(istioenv.Istiod, lookup, log, program)
	return nil
}

// IstiodVariable is an environment variable of istiod that `moonsail serve` reads, with the effect of a value.
type IstiodVariable struct {
	Name, Value string
	Effect      string // empty: the variable has no effect
	Why         string // the reason, if it has none
	Refused     bool   // the control plane does not start with it
}

// IstiodVariables returns the effect of each variable with the given values.
func IstiodVariables(values map[string]string) ([]IstiodVariable, error) {
	o := controlplane.Options{Mesh: &model.Mesh{}}
	var out []IstiodVariable
	for _, s := range istiodVariables {
		v := IstiodVariable{Name: s.name, Value: values[s.name], Why: s.why, Refused: s.refused}
		if s.refused {
			out = append(out, v)
			continue
		}
		var err error
		if v.Effect, err = s.apply(v.Value, &o); err != nil {
			return nil, fmt.Errorf("environment variable %s=%s: %w", v.Name, v.Value, err)
		}
		out = append(out, v)
	}
	for flag, name := range istiodFlags {
		out = append(out, IstiodVariable{Name: name, Value: values[name], Effect: "sets --" + flag + "; that flag and " + terminal.Variable(flag) + " override it"})
	}
	return out, nil
}

package translate

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/config/certfile"
	"github.com/moonsail/moonsail/internal/model"
)

// Certificates in files of a proxy come from its agent, which reads them, watches them, and tells what is wrong with
// them. Envoy itself refuses a cluster or listener with a file that is not there. It reads them where there
// is no such agent, or where a path has what stands between two of them in a secret's name.

// systemRoots verifies servers for which no CA is named, where Envoy reads it. Debian's and Alpine's place.
const systemRoots = "/etc/ssl/certs/ca-certificates.crt"

// fileWait is how long a cluster or listener waits for files, and with it what of its kind comes behind it; then its
// connections fail until they are there.
const fileWait = 2 * time.Second

var fileSource = &corev3.ConfigSource{
	ConfigSourceSpecifier: agentSource.ConfigSourceSpecifier,
	InitialFetchTimeout:   durationpb.New(fileWait),
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// setFileCertificates: all come the same way, as Envoy wants it.
func setFileCertificates(common *tlsv3.CommonTlsContext, fromAgent bool, list ...model.CertificateFiles) {
	var asked []*tlsv3.SdsSecretConfig
	var read []*tlsv3.TlsCertificate
	for _, f := range list {
		name, ok := certfile.Pair(f.Certificate, f.PrivateKey)
		fromAgent = fromAgent && ok
		asked = append(asked, &tlsv3.SdsSecretConfig{Name: name, SdsConfig: fileSource})
		read = append(read, &tlsv3.TlsCertificate{CertificateChain: file(f.Certificate), PrivateKey: file(f.PrivateKey)})
	}
	if fromAgent {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, asked...)
	} else {
		common.TlsCertificates = read
	}
}

// setFileRoots has peers verified by the CAs of a file, or the system's, beside what context says. crl may be empty.
func setFileRoots(common *tlsv3.CommonTlsContext, fromAgent bool, context *tlsv3.CertificateValidationContext, cas, crl string) {
	if name, ok := certfile.Roots(cas, crl); ok && fromAgent {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         context,
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: name, SdsConfig: fileSource},
			},
		}
		return
	}
	if cas == certfile.System {
		cas = systemRoots
	}
	context.TrustedCa = file(cas)
	if crl != "" {
		context.Crl = file(crl)
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: context}
}

func file(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

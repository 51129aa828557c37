package configure

import (
	"cmp"

	"github.com/moonsail/moonsail/internal/cli/istioenv"
	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
)

// annotationSecurePort is the port of istio-proxy that serves metrics with mutual TLS.
const annotationSecurePort = "prometheus.istio.io/secure-port"

// unreadBySidecars reports variables and annotations that sidecars ignore. The agent logs them when it starts, after the
// move from Istio. Of Pods of one owner only the first is reported.
func unreadBySidecars(objects []model.Object, templates []*model.Workload) (out problem.List) {
	type owner struct{ namespace, name string }
	reported := map[owner]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *model.MeshConfig:
			out = append(out, unreadVariables(o.Key, "data.mesh.defaultConfig.proxyMetadata", proxyMetadata(o.ProxyDefaults))...)
		case *model.ProxyConfig:
			out = append(out, unreadVariables(o.Key, "spec.environmentVariables", o.Environment)...)
		case *model.Workload:
			by := owner{o.Namespace, cmp.Or(o.Owner, o.Name)}
			if o.Kind == model.KindPod && !reported[by] {
				reported[by] = true
				out = append(out, unreadAnnotations(o, "metadata.annotations")...)
			}
		}
	}
	for _, w := range templates {
		out = append(out, unreadAnnotations(w, annotationsOf(w.Key))...)
	}
	return out
}

// unreadAnnotations reports the annotations of a workload that its sidecar ignores, in part or as a whole.
func unreadAnnotations(w *model.Workload, at problem.Path) (out problem.List) {
	for _, p := range unreadVariables(w.Key, "proxyMetadata", proxyMetadata(w.Annotations[istio.AnnotationProxyConfig])) {
		p.Field, p.Message = string(at.Key(istio.AnnotationProxyConfig)), p.Field+": "+p.Message
		out = append(out, p)
	}
	for _, name := range agent.UnreadAnnotations {
		if _, set := w.Annotations[name]; set {
			out = append(out, unread(w.Key, at.Key(name), "sidecars do not read it"))
		}
	}
	if _, set := w.Annotations[annotationSecurePort]; set {
		out = append(out, unread(w.Key, at.Key(annotationSecurePort), "metrics are served in plain text; restrict their ports with a NetworkPolicy"))
	}
	return out
}

// unreadVariables reports variables of sidecars that have no effect.
func unreadVariables(k model.Key, at problem.Path, env map[string]string) (out problem.List) {
	for _, v := range istioenv.Unread(istioenv.AgentAll(), func(name string) (string, bool) { value, set := env[name]; return value, set }) {
		out = append(out, unread(k, at.Key(v.Name), v.Why))
	}
	return out
}

func unread(k model.Key, at problem.Path, why string) problem.Problem {
	return problem.Problem{Severity: problem.SeverityWarning, Code: code.NotSupported, Object: k, Field: string(at), Message: "has no effect: " + why}
}

// proxyMetadata returns the variables of a ProxyConfig in YAML. Other messages are about one that cannot be read.
func proxyMetadata(text string) map[string]string {
	config, err := proxyconfig.ParseAny(text, istio.AnnotationProxyConfig)
	if err != nil {
		return nil
	}
	return config.GetProxyMetadata()
}

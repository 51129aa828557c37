package resourcename

import (
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// ConfigPath returns Istio's name of an object in the metadata "istio.config" of resources: its path at the API server
// in the group and version of Istio's networking objects.
func ConfigPath(k model.Key) string {
	return "/apis/networking.istio.io/v1/namespaces/" + k.Namespace + "/" + k.Kind.ConfigName() + "/" + k.Name
}

// CutConfigPath returns the end of what ConfigPath returns. It accepts any group and version. kind is a
// model.Kind.ConfigName.
func CutConfigPath(path string) (namespace, kind, name string, ok bool) {
	parts := strings.Split(path, "/")
	n := len(parts)
	if n < 4 {
		return "", "", "", false
	}
	return parts[n-3], parts[n-2], parts[n-1], true
}

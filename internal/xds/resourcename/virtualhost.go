package resourcename

import (
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// VirtualHost returns the name of a virtual host as a VHDS resource. name is unique in the route configuration and has
// no slash.
func VirtualHost(routeConfig, name string) string { return routeConfig + "/" + name }

// CutVirtualHost cuts what VirtualHost returns. The route configuration is everything before the last slash, as in
// Envoy, or empty without a slash.
func CutVirtualHost[S ~string | ~[]byte](resource S) (routeConfig, name S) {
	for i := len(resource) - 1; i >= 0; i-- {
		if resource[i] == '/' {
			return resource[:i], resource[i+1:]
		}
	}
	return resource[:0], resource
}

// HostPort returns the name of the virtual host for a port of a service, "reviews.shop.svc.cluster.local:80". Route
// configurations of one port have such names, too.
func HostPort(h model.Host, port uint32) string {
	return string(h) + ":" + strconv.FormatUint(uint64(port), 10)
}

// CutHostPort cuts what HostPort returns; false: the name has another form.
func CutHostPort(name string) (h model.Host, port uint32, ok bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(name[i+1:], 10, 32)
	return model.Host(name[:i]), uint32(n), err == nil
}

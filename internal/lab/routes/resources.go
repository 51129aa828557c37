package routes

import (
	"strings"
)

// shortType returns, for example, "VirtualHost".
func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// routeConfigOf returns the route configuration in a virtual host's name.
func routeConfigOf(name string) string {
	rc, _, _ := strings.Cut(name, "/")
	return rc
}

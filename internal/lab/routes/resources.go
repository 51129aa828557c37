package routes

import (
	"strings"
)

// shortType is "VirtualHost".
func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// routeConfigOf is the route configuration of a virtual host's name.
func routeConfigOf(name string) string {
	rc, _, _ := strings.Cut(name, "/")
	return rc
}

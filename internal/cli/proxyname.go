package cli

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
)

// podOf takes the form of kubectl and istioctl for the name of a proxy, too: pod/web-1.shop.
func podOf(name string) string {
	kind, pod, ok := strings.Cut(name, "/")
	if k := strings.ToLower(kind); ok && (k == "pod" || k == "pods" || k == "po") {
		return pod
	}
	return name
}

// getOf reads a page about one proxy, by its node id or its name: prefix, the name, and the rest of the path. Where there is no
// such proxy the error has the one that was probably meant.
func (c *debugClient) getOf(ctx context.Context, prefix, proxy, rest string, answer any) error {
	proxy = podOf(proxy)
	err := c.get(ctx, prefix+url.PathEscape(proxy)+rest, answer)
	var absent answerError
	if !isAbsent(err) || !errors.As(err, &absent) {
		return err
	}
	var list debug.ProxyList
	if c.get(ctx, "/debug/proxies", &list) != nil {
		return err
	}
	var names []string
	for i := range list.Proxies {
		p := &list.Proxies[i]
		names = append(names, p.Name, p.Name+"."+p.Namespace)
	}
	absent.What += spelling.DidYouMean(proxy, names)
	return absent
}

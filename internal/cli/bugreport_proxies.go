package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/bugreport"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// text reads a page as it is.
func (c *debugClient) text(ctx context.Context, path string) ([]byte, error) {
	page := c.url(path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, err
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body := io.LimitReader(resp.Body, maxDebugAnswer)
	if resp.StatusCode != http.StatusOK {
		return nil, refused(page, resp, body)
	}
	return io.ReadAll(body)
}

// known fails where a proxy that is named is not there: a report that lacks what it was to be about is none. Who does not
// answer knows none, and costs its part only.
func (f *bugReportFlags) known(ctx context.Context, named []string) error {
	for i, name := range named {
		named[i] = podOf(name)
		if err := f.client.getOf(ctx, "/debug/proxies/", name, "", &json.RawMessage{}); isAbsent(err) {
			return err
		}
	}
	return nil
}

// chosen are the proxies that are reported in full: those that are named, or some, of which
// those that lack something come first.
func (f *bugReportFlags) chosen(ctx context.Context, named []string) []string {
	if len(named) > 0 {
		return named
	}
	var list debug.ProxyList
	if f.sample == 0 || f.client.get(ctx, "/debug/proxies?local", &list) != nil {
		return nil // that page's own file says why
	}
	slices.SortStableFunc(list.Proxies, func(a, b server.ProxyState) int { return cmp.Compare(trouble(&b), trouble(&a)) })
	var out []string
	for _, p := range list.Proxies {
		if name := p.Name + "." + p.Namespace; !slices.Contains(out, name) && len(out) < f.sample {
			out = append(out, name)
		}
	}
	return out
}

// trouble orders proxies by how much is wrong with them.
func trouble(p *server.ProxyState) int {
	n := min(p.Owed, 1)
	for _, t := range p.Types {
		n += 2 * min(len(t.Held), 1)
	}
	return n
}

// proxy are the files of one proxy.
func (f *bugReportFlags) proxy(name string) []bugreport.Item {
	folder := "proxies/" + strings.ReplaceAll(path.Base(name), "~", "_") + "/"
	at := "/debug/proxies/" + url.PathEscape(name)
	return []bugreport.Item{
		f.page(folder+"state.json", at, "all that is known of its stream", false),
		f.page(folder+"intended.json", at+"/config/all?full", "what it is to have, and how far that has come", false),
		f.page(folder+"in-use.json", at+"/envoy/in-use", "what its Envoy has in use", false),
		f.page(folder+"config_dump.json", at+"/envoy/config_dump?"+explain.DumpQuery, "what its Envoy has", false),
		f.page(folder+"server_info.json", at+"/envoy/server_info", "its Envoy's build and state", false),
		f.page(folder+"clusters.json", at+"/envoy/clusters", "its Envoy's clusters and hosts", false),
		f.page(folder+"listeners.json", at+"/envoy/listeners", "its Envoy's listeners", false),
		f.page(folder+"stats.txt", at+"/envoy/stats?usedonly", "its Envoy's statistics", false),
		f.page(folder+"logs.txt", at+"/envoy/logs", "the end of its agent's log, with Envoy's in it", false),
	}
}

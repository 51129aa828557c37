package preview

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/base/peeraddr"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// AccessLog is the calls in access logs of Envoys, in Istio's default format, as text or JSON. The zero value is empty.
type AccessLog struct {
	entries map[logged]bool
	// Others counts lines in other formats, for example of the agent.
	Others int
}

// logged is a call in an access log.
type logged struct {
	url, method, address string
	ip                   netip.Addr // of the caller
	writer               string     // the caller, if it wrote the log: NAME.NAMESPACE, or the name of a Pod; empty: unknown
}

const maxLogLine = 1 << 20 // bytes

// Read adds the calls of a log. writer is the proxy that wrote it, NAME.NAMESPACE; empty: the lines may have prefixes as of
// 'kubectl logs --prefix'. It returns an error if no line has the format.
func (l *AccessLog) Read(r io.Reader, writer string) error {
	if l.entries == nil {
		l.entries = map[logged]bool{}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLogLine)
	known := 0
	for lines.Scan() {
		text, by := strings.TrimSpace(lines.Text()), writer
		if rest, ok := strings.CutPrefix(text, "[pod/"); ok {
			prefix, after, _ := strings.Cut(rest, "] ")
			pod, _, _ := strings.Cut(prefix, "/")
			text = after
			if by == "" {
				by = pod
			}
		}
		f, ok := logFields(text)
		if !ok {
			l.Others++
			continue
		}
		known++
		if e, ok := f.call(by); ok {
			l.entries[e] = true
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if known == 0 {
		return errors.New("no line has Istio's default format of access logs, as text or JSON")
	}
	return nil
}

// Calls returns the calls whose callers are among the proxies of both sides, in order, and the number of the others.
func (l *AccessLog) Calls(before, after *Side) (calls []Call, unknown int) {
	of := map[string]string{} // IP address, name or name.namespace -> name.namespace; empty: several have it
	for _, side := range []*Side{before, after} {
		for _, p := range side.Proxies {
			keys := append([]string{p.Name, p.String()}, p.IPs...)
			for _, k := range keys {
				if was, ok := of[k]; ok && was != p.String() {
					of[k] = ""
				} else {
					of[k] = p.String()
				}
			}
		}
	}
	for e := range l.entries {
		from := of[e.writer]
		if e.writer == "" {
			from = of[e.ip.String()]
		}
		if from == "" {
			unknown++
			continue
		}
		calls = append(calls, Call{From: from, URL: e.url, Method: e.method, Address: e.address})
	}
	slices.SortFunc(calls, func(a, b Call) int {
		return strings.Compare(a.From+" "+a.String()+" "+a.Address, b.From+" "+b.String()+" "+b.Address)
	})
	return calls, unknown
}

// fields of an entry, by their names in Istio's JSON format.
type fields map[string]string

// textFields are the fields of the text format, in order.
var textFields = []string{
	"start_time", "request", "response_code", "response_flags", "response_code_details", "connection_termination_details",
	"upstream_transport_failure_reason", "bytes_received", "bytes_sent", "duration", "upstream_service_time", "x_forwarded_for",
	"user_agent", "request_id", "authority", "upstream_host", "upstream_cluster", "upstream_local_address", "downstream_local_address",
	"downstream_remote_address", "requested_server_name", "route_name",
}

// logFields reads a line; false: it has another format.
func logFields(line string) (fields, bool) {
	f := fields{}
	if strings.HasPrefix(line, "{") {
		var object map[string]any
		if json.Unmarshal([]byte(line), &object) != nil {
			return nil, false
		}
		for k, v := range object {
			if v != nil {
				f[k] = fmt.Sprint(v)
			}
		}
		return f, f["downstream_local_address"] != "" && f["upstream_cluster"] != ""
	}
	words := logWords(line)
	if len(words) < len(textFields) || !strings.HasPrefix(line, "[") {
		return nil, false
	}
	for i, name := range textFields {
		f[name] = words[i]
	}
	request := strings.Fields(f["request"])
	if len(request) != 3 {
		return nil, false
	}
	f["method"], f["path"], f["protocol"] = request[0], request[1], request[2]
	return f, true
}

// logWords splits a line at spaces outside of [...] and "...", which it removes.
func logWords(line string) (words []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		end, closing := " ", map[byte]string{'[': "]", '"': "\""}[line[0]]
		if closing != "" {
			line, end = line[1:], closing
		}
		word, rest, _ := strings.Cut(line, end)
		words, line = append(words, word), rest
	}
	return words
}

// get returns a field; empty if Envoy had no value.
func (f fields) get(name string) string {
	if v := f[name]; v != "-" {
		return v
	}
	return ""
}

// call returns the call of an entry. writer is the proxy that wrote it. The result is false for connections at the server,
// of which only the client knows what they were for, and for entries with an invalid URL, method or address.
func (f fields) call(writer string) (logged, bool) {
	e, ok := f.parsed(writer)
	if !ok {
		return e, false
	}
	u, err := url.Parse(e.url)
	return e, err == nil && u.Host != "" && isVisible(e.method) && (e.address == "" || model.IsIP(e.address))
}

// isVisible reports whether a text has only visible characters of ASCII, as methods have.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (f fields) parsed(writer string) (logged, bool) {
	e := logged{ip: peeraddr.IP(f.get("downstream_remote_address"))}
	cluster, ok := resourcename.ParseCluster(f.get("upstream_cluster"))
	if f.isInbound() {
		return e, f.inbound(&e)
	}
	e.writer = writer
	ip, port, err := net.SplitHostPort(f.get("downstream_local_address"))
	if err != nil {
		return e, false
	}
	isKnown := ok && cluster.Direction == resourcename.Outbound
	switch authority, sni := f.get("authority"), f.get("requested_server_name"); {
	case authority != "":
		host := authority
		if h, _, err := net.SplitHostPort(authority); err == nil {
			host = h
		}
		e.url = f.scheme() + "://" + net.JoinHostPort(host, port) + pathOf(f)
		e.method = methodOf(f)
		if !isKnown {
			e.address = ip // the name may mean nothing to the mesh
		}
	case sni != "":
		e.url = "tls://" + net.JoinHostPort(sni, port)
		if !isKnown {
			e.address = ip
		}
	default:
		e.url = "tcp://" + net.JoinHostPort(ip, port)
	}
	return e, true
}

func (f fields) isInbound() bool {
	return strings.HasPrefix(f.get("upstream_cluster"), string(resourcename.Inbound)+"|")
}

// inbound fills in a request at the server. Its port is that of the authority: the log has the port of the container.
func (f fields) inbound(e *logged) bool {
	authority := f.get("authority")
	if authority == "" {
		return false
	}
	e.url = f.scheme() + "://" + authority + pathOf(f)
	e.method = methodOf(f)
	return true
}

// scheme returns the protocol of the application. Requests between sidecars have HTTP/2 whatever that is.
func (f fields) scheme() string {
	switch {
	case strings.HasPrefix(f.get("user_agent"), "grpc-"):
		return "grpc"
	case f.get("protocol") == "HTTP/2" && !f.isInbound():
		return "http2"
	}
	return "http"
}

func pathOf(f fields) string {
	if p := f.get("path"); strings.HasPrefix(p, "/") {
		return p
	}
	return "/"
}

func methodOf(f fields) string {
	if m := f.get("method"); m != http.MethodGet {
		return m
	}
	return ""
}

package routes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/openloop"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// proxy is a running Envoy.
type proxy struct {
	process *envoy.Process
	admin   *envoy.Admin
	output  *lockedBuffer
	dir     string
	begun   time.Time
	early   []string // responses of a listener that was not ready yet; there should be none
}

// lockedBuffer is Envoy's output.
type lockedBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startProxy starts an Envoy that gets its listeners from the server, and its only cluster from its bootstrap.
func startProxy(path string, workers int, xds, upstream uint32) (*proxy, error) {
	text := func(admin string) ([]byte, error) { return bootstrap(admin, xds, upstream) }
	return startProxyWith(path, workers, text)
}

// startProxyWith starts an Envoy with a bootstrap that gets the path of the admin interface.
func startProxyWith(path string, workers int, bootstrap func(admin string) ([]byte, error)) (*proxy, error) {
	dir, err := os.MkdirTemp("", "moonsail-routes-")
	if err != nil {
		return nil, err
	}
	p := &proxy{dir: dir, output: &lockedBuffer{}}
	if err := p.start(path, workers, bootstrap); err != nil {
		_ = os.RemoveAll(dir) // the system removes it in the end
		return nil, err
	}
	return p, nil
}

func (p *proxy) start(path string, workers int, bootstrap func(admin string) ([]byte, error)) error {
	text, err := bootstrap(filepath.Join(p.dir, "admin"))
	if err != nil {
		return err
	}
	file := filepath.Join(p.dir, "envoy.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	p.begun = time.Now()
	p.process, err = envoy.Start(envoy.Options{Path: path, Bootstrap: file, Concurrency: workers, LogLevel: "warning", Output: p.output})
	if err != nil {
		return err
	}
	p.admin = envoy.NewAdmin("unix://" + filepath.Join(p.dir, "admin"))
	return nil
}

func (p *proxy) stop() {
	p.admin.Close()
	p.process.Stop(time.Second)
	_ = os.RemoveAll(p.dir) // the system removes it in the end
}

// address returns the address of a listener; "" if it does not exist or warms.
func (p *proxy) address(ctx context.Context, listener string) (string, error) {
	text, err := p.admin.Listeners(ctx)
	if err != nil {
		return "", err
	}
	var list struct {
		Statuses []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return "", err
	}
	for _, l := range list.Statuses {
		if l.Name == listener && l.Local.Socket.Port != 0 {
			return net.JoinHostPort(l.Local.Socket.Address, strconv.Itoa(l.Local.Socket.Port)), nil
		}
	}
	return "", nil
}

// readyTime is how long a listener may take: with 5000 clusters a busy machine takes half a minute.
const readyTime = 2 * time.Minute

// ready waits until a listener answers a request for a host with its route. A warming listener is listed and bound, but
// accepts no connection. It returns the time since the start of the process.
func (p *proxy) ready(ctx context.Context, listener, host, routed string) (where string, took time.Duration, err error) {
	return p.readyAt(ctx, "", listener, host, routed)
}

// readyAt is ready for a listener with a known address; "": it asks the proxy.
func (p *proxy) readyAt(ctx context.Context, at, listener, host, routed string) (where string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for where = at; ; {
		if where == "" {
			where, err = p.address(ctx, listener)
		}
		if where != "" {
			var got string
			if got, err = ask(ctx, where, host); got == "200 "+routed {
				return where, time.Since(p.begun), nil
			} else if err == nil {
				p.early = append(p.early, got)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", 0, p.notReady(listener, ctx.Err(), err)
		case <-p.process.Done():
			return "", 0, fmt.Errorf("the proxy ended: %s: %s", envoy.Ending(p.process.Err()), p.output)
		}
	}
}

// notReady describes why ready gives up: the last error, and Envoy's message, if there is one.
func (p *proxy) notReady(listener string, over, last error) error {
	text := ""
	if last != nil {
		text = ": " + last.Error()
	}
	if said := strings.TrimSpace(p.output.String()); said != "" {
		text += "; Envoy: " + said
	}
	return fmt.Errorf("listener %s is not ready after %s (%w)%s", listener, time.Since(p.begun).Round(time.Second), over, text)
}

// ask sends one request and returns the status and the route: "200 svc-7/0".
func ask(ctx context.Context, where, host string) (string, error) {
	conns, err := (&openloop.Load{Address: where, Conns: 1}).Dial(ctx)
	if err != nil {
		return "", err
	}
	defer openloop.CloseAll(conns)
	defer context.AfterFunc(ctx, func() { openloop.CloseAll(conns) })()
	if _, err := conns[0].Write(openloop.Request(host)); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conns[0]), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return fmt.Sprintf("%d %s", resp.StatusCode, resp.Header.Get(versionName)), nil
}

// memory returns what Envoy has allocated, and its resident memory, in bytes.
func (p *proxy) memory(ctx context.Context) (allocated uint64, resident int64, err error) {
	stats, err := p.admin.Stats(ctx, "^server.memory_allocated$")
	if err != nil {
		return 0, 0, err
	}
	m, err := child.MemoryOf(p.process.Pid())
	return stats["server.memory_allocated"], m.RSS, err
}

// received returns the bytes that Envoy has read from its control plane, including those of HTTP/2.
func (p *proxy) received(ctx context.Context) (uint64, error) {
	const name = "cluster." + xdsCluster + ";.upstream_cx_rx_bytes_total"
	stats, err := p.admin.Stats(ctx, "^"+regexp.QuoteMeta(name)+"$")
	if n, ok := stats[name]; ok || err != nil {
		return n, err
	}
	return 0, fmt.Errorf("no statistic %s", name)
}

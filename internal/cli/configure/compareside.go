package configure

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/diagnose/compare"
	"github.com/moonsail/moonsail/internal/diagnose/configdump"
	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/fetch"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Sources that are no path.
const (
	sourceIstiod  = "istiod"
	sourceCluster = "cluster"
	plainScheme   = "xds://"
	tlsScheme     = "xdss://"
	// istiodPort is the port of istiod with xDS in plain text.
	istiodPort = 15010
	// parallelProxies bounds how many proxies are read at once.
	parallelProxies = 8
)

// sides reads the two sides of a comparison.
type sides struct {
	flags   *compareFlags
	cluster *preview.Side   // the objects of the cluster; nil: not read
	nodes   []*compare.Node // the mesh's proxies
	notes   []string
	closers []func()
}

func (s *sides) close() {
	for _, c := range slices.Backward(s.closers) {
		c()
	}
}

// read reads both sides: config dumps first, because they name the proxies, and then what needs these.
func (s *sides) read(ctx context.Context) (left, right *compare.Side, err error) {
	sources := []string{s.flags.from, s.flags.to}
	var out [2]*compare.Side
	for i, source := range sources {
		if out[i], err = s.dumps(source); err != nil {
			return nil, nil, err
		}
	}
	var objects [2]*preview.Side
	for i, source := range sources {
		if objects[i], err = s.objects(ctx, source, out[i] != nil); err != nil {
			return nil, nil, err
		}
	}
	if err := s.population(ctx, objects); err != nil {
		return nil, nil, err
	}
	for i, source := range sources {
		switch {
		case out[i] != nil:
		case objects[i] != nil:
			out[i], err = s.compiled(source, *objects[i])
		default:
			out[i], err = s.running(ctx, source)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return out[0], out[1], nil
}

// dumps reads a source of config dumps; nil: it is another kind of source.
func (s *sides) dumps(source string) (*compare.Side, error) {
	if source == sourceIstiod || source == sourceCluster || strings.Contains(source, "://") {
		return nil, nil
	}
	var side *compare.Side
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if name := strings.TrimSuffix(path, ".gz"); filepath.Ext(name) != ".json" {
			return nil
		}
		text, err := configdump.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte(`"configs"`)) {
			return err
		}
		p, err := compare.ParseDump(text, server.ProxyOf)
		if err != nil {
			return &terminal.UserError{What: "cannot read the config dump", Where: path, Err: err,
				Next: "write it with 'istioctl proxy-config all POD -o json' or 'curl localhost:15000/config_dump?include_eds'"}
		}
		if side == nil {
			side = &compare.Side{Name: "dumps in " + source}
		}
		side.Proxies = append(side.Proxies, p)
		s.addNode(p.Node)
		return nil
	})
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		return nil, &terminal.UserError{What: "no such file or directory", Where: source,
			Next: "give a path, 'istiod', 'cluster' or xds://HOST:PORT"}
	}
	return side, err
}

func (s *sides) addNode(n *compare.Node) {
	if !slices.ContainsFunc(s.nodes, func(o *compare.Node) bool { return o.String() == n.String() }) {
		s.nodes = append(s.nodes, n)
	}
}

// objects reads the objects of a source; nil: it has none.
func (s *sides) objects(ctx context.Context, source string, read bool) (*preview.Side, error) {
	switch {
	case read, source == sourceIstiod, strings.Contains(source, "://"):
		return nil, nil
	case source == sourceCluster:
		return s.readCluster(ctx)
	}
	tree, err := file.AnalyzeAll(config.Decoder{Domain: s.flags.domain, DefaultNamespace: "default", Revision: s.flags.revision}, nil, source)
	if err != nil {
		return nil, unreadable([]string{source}, err)
	}
	return &preview.Side{Objects: tree.Objects, Templates: tree.Templates}, nil
}

// readCluster reads the cluster's objects once.
func (s *sides) readCluster(ctx context.Context) (*preview.Side, error) {
	if s.cluster != nil {
		return s.cluster, nil
	}
	access, known := s.flags.cluster.Default()
	if !known {
		return nil, terminal.UsageError{Err: errors.New("no cluster: give --kubeconfig (not needed in a Pod), or give files with --from and --to")}
	}
	content, _, err := readCluster(ctx, &s.flags.cluster, access, s.flags.domain, s.flags.root, s.flags.revision)
	if err != nil {
		return nil, err
	}
	s.cluster = &preview.Side{Objects: content.Objects}
	return s.cluster, nil
}

// population chooses the proxies: those of dumps, else those of the objects of a side, else of the cluster.
func (s *sides) population(ctx context.Context, objects [2]*preview.Side) error {
	files := false
	for i, source := range []string{s.flags.from, s.flags.to} {
		files = files || objects[i] != nil && source != sourceCluster
	}
	from := slices.DeleteFunc([]*preview.Side{objects[0], objects[1]}, func(o *preview.Side) bool { return o == nil })
	if len(from) == 0 && len(s.nodes) == 0 {
		cluster, err := s.readCluster(ctx)
		if err != nil {
			return err
		}
		copied := *cluster
		from = append(from, &copied)
	}
	if len(from) == 0 {
		return nil
	}
	first, second := from[0], &preview.Side{}
	if len(from) > 1 && from[1] != first {
		second = from[1]
	}
	preview.Populate(first, second, files)
	if len(s.nodes) > 0 {
		return nil
	}
	for _, p := range slices.Concat(first.Proxies, second.Proxies) {
		if !files && madeUp(p) {
			continue
		}
		n, err := compare.NodeOf(p)
		if err != nil {
			return err
		}
		s.addNode(n)
	}
	return nil
}

// madeUp reports whether Populate made a router for a Gateway that selects no Pod: no control plane knows its address.
func madeUp(p *model.Proxy) bool {
	ip, err := netip.ParseAddr(p.IPs[0])
	return err == nil && reserved.Contains(ip)
}

// reserved are addresses of no network, which Populate uses.
var reserved = netip.MustParsePrefix("240.0.0.0/4")

// compiled returns what this binary makes of objects.
func (s *sides) compiled(source string, objects preview.Side) (*compare.Side, error) {
	mesh := model.DefaultMesh()
	mesh.Domain, mesh.RootNamespace = s.flags.domain, s.flags.root
	objects.Proxies = nil
	for _, n := range s.nodes {
		objects.Proxies = append(objects.Proxies, n.Proxy)
	}
	name := "Moonsail"
	if source != sourceCluster {
		name += " with " + source
	}
	side, failures, err := compare.Compiled(name, mesh, objects)
	s.notes = append(s.notes, failures...)
	return side, err
}

// running reads what a running control plane gives to each proxy.
func (s *sides) running(ctx context.Context, source string) (*compare.Side, error) {
	options, err := s.reach(ctx, source)
	if err != nil {
		return nil, err
	}
	c, err := fetch.Connect(*options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing is lost
	side := &compare.Side{Name: source, Proxies: make([]*compare.Proxy, len(s.nodes))}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelProxies)
	for i, n := range s.nodes {
		group.Go(func() error {
			p, err := n.Read(ctx, c)
			if err != nil {
				return &terminal.UserError{What: "cannot read the resources of " + n.String(), Where: source, Err: err,
					Next: "check that the control plane serves xDS there; its port 15010 needs no certificate, 15012 needs xdss:// with --ca and a token or certificate of that proxy"}
			}
			side.Proxies[i] = p
			return nil
		})
	}
	return side, group.Wait()
}

// reach returns how to reach a control plane.
func (s *sides) reach(ctx context.Context, source string) (*fetch.Options, error) {
	if address, ok := strings.CutPrefix(source, plainScheme); ok {
		return &fetch.Options{Address: address}, nil
	}
	if address, ok := strings.CutPrefix(source, tlsScheme); ok {
		return s.reachTLS(address)
	}
	if source != sourceIstiod {
		return nil, terminal.UsageError{Err: fmt.Errorf("%q: unknown source: use istiod, cluster, xds://HOST:PORT, xdss://HOST:PORT or a path", source)}
	}
	access, known := s.flags.cluster.Default()
	if !known {
		return nil, terminal.UsageError{Err: errors.New("no cluster: give --kubeconfig (not needed in a Pod), or another --from")}
	}
	c, err := kube.Connect(access)
	if err != nil {
		return nil, s.flags.cluster.Explain(err)
	}
	s.closers = append(s.closers, c.Close)
	pod, err := s.flags.cluster.FindIstiod(ctx, c, s.flags.namespace, s.flags.revision)
	if err != nil {
		return nil, err
	}
	tunnel, err := c.Tunnel(pod.Namespace, pod.Name, istiodPort)
	if err != nil {
		return nil, s.flags.cluster.Explain(err)
	}
	s.closers = append(s.closers, tunnel.Close)
	return &fetch.Options{Address: pod.Name, Dial: tunnel.Dial}, nil
}

func (s *sides) reachTLS(address string) (*fetch.Options, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, terminal.UsageError{Err: fmt.Errorf("%s%s: %w: write HOST:PORT", tlsScheme, address, err)}
	}
	security := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if s.flags.ca != "" {
		text, err := os.ReadFile(s.flags.ca)
		if err != nil {
			return nil, err
		}
		security.RootCAs = x509.NewCertPool()
		if !security.RootCAs.AppendCertsFromPEM(text) {
			return nil, terminal.UsageError{Err: fmt.Errorf("--ca %s: no certificate in PEM form", s.flags.ca)}
		}
	}
	if s.flags.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.flags.cert, s.flags.key)
		if err != nil {
			return nil, terminal.UsageError{Err: fmt.Errorf("--cert %s: %w", s.flags.cert, err)}
		}
		security.Certificates = []tls.Certificate{pair}
	}
	o := &fetch.Options{Address: address, TLS: security}
	if s.flags.token != "" {
		text, err := os.ReadFile(s.flags.token)
		if err != nil {
			return nil, err
		}
		o.Token = strings.TrimSpace(string(text))
	}
	return o, nil
}

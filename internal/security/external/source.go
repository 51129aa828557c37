package external

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/security/certpem"
	"github.com/moonsail/moonsail/internal/security/workloadapi"
)

// read reads the files. While they are replaced one by one, the pair may not match: the next reading finds them complete.
func (a *Authority) read() (*material, error) {
	o := &a.opts
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", o.CertFile, o.KeyFile, err)
	}
	var chain []*x509.Certificate
	for _, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.CertFile, err)
		}
		chain = append(chain, c)
	}
	pair.Leaf = chain[0]
	text, err := os.ReadFile(o.RootFile)
	if err != nil {
		return nil, err
	}
	roots, leftOut, err := certpem.DecodeRoots(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.RootFile, err)
	}
	if a.rootErrors.New(leftOut) {
		o.Log.Warn("a part of the mesh's roots is left out: proxies under them are refused", "from", o.RootFile, "reasons", leftOut)
	}
	m, err := a.newMaterial(&pair, chain, roots)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", o.CertFile, o.RootFile, err)
	}
	return m, nil
}

// Pauses between attempts to reach a Workload API.
const (
	openRetry   = 2 * time.Second
	followRetry = 5 * time.Second
)

// awaitAnswer waits for the first answer of the Workload API.
func (a *Authority) awaitAnswer(ctx context.Context) error {
	attempt, done := context.WithCancel(ctx)
	defer done()
	var errs logonce.Errors
	workloadapi.Follow(attempt, a.opts.WorkloadAPI, func(answer *workloadapi.Answer) {
		m, err := a.fromAnswer(answer)
		if err != nil {
			a.opts.Log.Warn("the control plane has no certificate yet", "from", a.Place(), "error", err)
			return
		}
		a.take(m)
		done()
	}, func(err error) time.Duration {
		if errs.New(err) {
			a.opts.Log.Warn("the control plane has no certificate yet; the next attempt follows", "error", err)
		}
		return openRetry
	})
	if a.present.Load() == nil {
		return ctx.Err()
	}
	return nil
}

func (a *Authority) follow(ctx context.Context) {
	workloadapi.Follow(ctx, a.opts.WorkloadAPI, func(answer *workloadapi.Answer) { a.apply(a.fromAnswer(answer)) },
		func(err error) time.Duration {
			a.apply(nil, err)
			return followRetry
		})
}

// fromAnswer takes the default identity. Roots of federated trust domains do not verify clients: their workloads get no
// configuration of this mesh.
func (a *Authority) fromAnswer(answer *workloadapi.Answer) (*material, error) {
	own := answer.Identities[0]
	roots, _ := answer.Of(own.TrustDomain)
	if len(roots) == 0 {
		return nil, errors.New("an answer without roots of the trust domain " + own.TrustDomain)
	}
	pair := &tls.Certificate{PrivateKey: own.Key, Leaf: own.Chain[0]}
	for _, c := range own.Chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return a.newMaterial(pair, own.Chain, roots)
}

package ca

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// Options of an Authority.
type Options struct {
	Store  Store
	TTL    time.Duration // default lifetime of certificates; 0: DefaultTTL
	MaxTTL time.Duration // 0: DefaultMaxTTL
	// Organization is in the name of a generated root.
	Organization string
	// RootTTL is the lifetime of a generated root; 0: ten years.
	RootTTL time.Duration
	Every   time.Duration // interval of reading the Store; 0: ReadEvery
	// RetryOpen: Open retries while the Store cannot be read, for example because it is on another machine.
	RetryOpen bool
	Log       *slog.Logger
	Now       func() time.Time // nil: time.Now
}

// Istio's lifetimes.
const (
	DefaultTTL    = 24 * time.Hour
	DefaultMaxTTL = 90 * 24 * time.Hour
)

// Timing.
const (
	ReadEvery = 5 * time.Second
	// readTimeout bounds reading the Store.
	readTimeout = 10 * time.Second
	// openRetryInterval is the time between attempts to open a Store that cannot be read.
	openRetryInterval = 2 * time.Second
	// attempts bounds how often Open tries to create or read a root, while others do the same.
	attempts = 5
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	opts   Options
	now    func() time.Time
	signer atomic.Pointer[signer]

	issued atomic.Uint64 // certificates of workloads

	problem logonce.Problem // of the last read of the Store

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	since   time.Time // start of the present signer
}

// Open reads the signing certificate, and generates one if the Store is empty.
func Open(ctx context.Context, o Options) (*Authority, error) {
	o.TTL, o.MaxTTL = cmp.Or(o.TTL, DefaultTTL), cmp.Or(o.MaxTTL, DefaultMaxTTL)
	o.RootTTL, o.Every = cmp.Or(o.RootTTL, rootTTL), cmp.Or(o.Every, ReadEvery)
	if o.TTL > o.MaxTTL {
		return nil, fmt.Errorf("the default lifetime of certificates (%s) exceeds the maximum (%s): lower the default or raise the maximum", o.TTL, o.MaxTTL)
	}
	a := &Authority{opts: o, now: o.Now, changed: make(chan struct{})}
	if a.now == nil {
		a.now = time.Now
	}
	c, err := a.readOrCreate(ctx)
	var errs logonce.Errors
	for err != nil && o.RetryOpen && ctx.Err() == nil {
		if errs.New(err) {
			o.Log.Warn("cannot read the certificate authority; the next attempt follows", "where", o.Store.Place(), "error", err)
		}
		_ = clock.Sleep(ctx, openRetryInterval)
		c, err = a.readOrCreate(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", o.Store.Place(), err)
	}
	s, err := newSigner(c, a.now())
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", c.Where, err)
	}
	_ = s.takeRevoked(nil, a.now()) // only an error beside a signer before
	a.take(s)
	if s.unread != nil {
		a.problem.Note(s.unread)
		o.Log.Warn("the certificate authority refuses no revoked certificates", "error", s.unread)
	}
	return a, nil
}

// readOrCreate returns the contents of the Store. It creates a root if the Store is empty.
func (a *Authority) readOrCreate(ctx context.Context) (*Contents, error) {
	for range attempts {
		c, err := a.opts.Store.Read(ctx)
		if c != nil || err != nil {
			return c, err
		}
		f, err := newRoot(cmp.Or(a.opts.Organization, "Moonsail"), a.opts.RootTTL, a.now())
		if err != nil {
			return nil, err
		}
		if err := a.opts.Store.Create(ctx, f); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the created files are gone at once")
}

// take makes a signer the present one.
func (a *Authority) take(s *signer) {
	old := a.signer.Swap(s)
	a.mu.Lock()
	a.since = a.now()
	if old != nil && (old.rootPEM != s.rootPEM || old.revoked.PEM() != s.revoked.PEM()) {
		close(a.changed)
		a.changed = make(chan struct{})
	}
	a.mu.Unlock()
	a.opts.Log.Info("the certificate authority signs certificates", "by", s.cert.Subject.String(), "from", s.contents.Where, "own", s.contents.Own,
		"expires", s.expiry().Format(time.RFC3339), "roots", len(s.roots))
}

// Run reads the Store periodically until ctx ends, and renews a generated root.
func (a *Authority) Run(ctx context.Context) {
	tick := time.NewTicker(a.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.look(ctx)
		}
	}
}

// look reads the Store once. It logs the begin and the end of a problem.
func (a *Authority) look(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := a.refresh(within)
	if ctx.Err() != nil {
		return
	}
	switch began, ended := a.problem.Note(err); {
	case began:
		a.opts.Log.Warn("the certificate authority stays unchanged", "where", a.opts.Store.Place(), "error", err)
	case ended:
		a.opts.Log.Info("the certificate authority can be read again", "where", a.opts.Store.Place())
	}
}

// refresh applies a changed Store, and renews a generated root when it is due.
func (a *Authority) refresh(ctx context.Context) error {
	c, err := a.opts.Store.Read(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return errors.New("the files are gone: restore them, or restart to generate another root")
	}
	now, s := a.now(), a.signer.Load()
	if c.Files.fingerprint() != s.stamp {
		before := s
		if s, err = newSigner(c, now); err != nil {
			return fmt.Errorf("%s: %w", c.Where, err)
		}
		if err := s.takeRevoked(before, now); err != nil {
			return err
		}
		a.take(s)
	}
	if !c.Own || !selfSigned(s.cert) || now.Before(renewAt(s.cert, renewAfter)) {
		return s.unread
	}
	f, err := s.renewed(a.opts.RootTTL, now)
	if err != nil {
		return fmt.Errorf("%s: cannot renew the root: %w", c.Where, err)
	}
	// The next look applies the result, which may be another control plane's.
	return a.opts.Store.Replace(ctx, c, f)
}

// Trust returns what verifies peers, and a channel that is closed when it changes.
func (a *Authority) Trust() (t revocation.Trust, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.signer.Load()
	return revocation.Trust{Roots: s.rootPEM, Revoked: s.revoked.PEM(), Unread: s.revoked == nil && s.unread != nil}, a.changed
}

// Revoked returns the certificates that are revoked.
func (a *Authority) Revoked() *revocation.Lists { return a.signer.Load().revoked }

// Pool returns the roots for verification.
func (a *Authority) Pool() *x509.CertPool { return a.signer.Load().pool }

// Now returns the time at which certificates are verified.
func (a *Authority) Now() time.Time { return a.now() }

// RootExpiry returns the first expiry of the roots.
func (a *Authority) RootExpiry() time.Time { return a.signer.Load().roots[0].NotAfter }

// ChainExpiry returns the first expiry of the signing certificate and the certificates between it and its root.
func (a *Authority) ChainExpiry() time.Time { return a.signer.Load().expiry() }

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
)

// Options are what an authority can be told.
type Options struct {
	Store  Store
	TTL    time.Duration // of a certificate that is not asked for a time; 0: DefaultTTL
	MaxTTL time.Duration // 0: DefaultMaxTTL
	// Organization is in the name of a root that is made here.
	Organization string
	// RootTTL is how long such a root lasts; 0: ten years.
	RootTTL time.Duration
	Every   time.Duration // how often the Store is read again; 0: ReadEvery
	// Patient: a Store that cannot be read is waited for, as it is elsewhere.
	Patient bool
	Log     *slog.Logger
	Now     func() time.Time // nil: time.Now
}

// Istio's.
const (
	DefaultTTL    = 24 * time.Hour
	DefaultMaxTTL = 90 * 24 * time.Hour
)

// Timing.
const (
	ReadEvery = 5 * time.Second
	// readTimeout bounds one look at the Store.
	readTimeout = 10 * time.Second
	// patience is between attempts to read a Store that cannot be read.
	patience = 2 * time.Second
	// attempts bounds how often Open looks who was first to create what it needs.
	attempts = 5
)

// Authority signs certificates. All its functions may be called by many goroutines.
type Authority struct {
	opts   Options
	now    func() time.Time
	signer atomic.Pointer[signer]

	issued atomic.Uint64 // certificates of workloads

	mu      sync.Mutex // guards what follows
	problem string     // of the last look at the Store; empty: none
	changed chan struct{}
	since   time.Time // when the signer was taken up
}

// Open reads what there is to sign with, and makes it where there is nothing.
func Open(ctx context.Context, o Options) (*Authority, error) {
	o.TTL, o.MaxTTL = cmp.Or(o.TTL, DefaultTTL), cmp.Or(o.MaxTTL, DefaultMaxTTL)
	o.RootTTL, o.Every = cmp.Or(o.RootTTL, rootTTL), cmp.Or(o.Every, ReadEvery)
	if o.TTL > o.MaxTTL {
		return nil, fmt.Errorf("the usual life of a certificate (%s) is longer than the longest (%s)", o.TTL, o.MaxTTL)
	}
	a := &Authority{opts: o, now: o.Now, changed: make(chan struct{})}
	if a.now == nil {
		a.now = time.Now
	}
	c, err := a.readOrCreate(ctx)
	for told := ""; err != nil && o.Patient && ctx.Err() == nil; c, err = a.readOrCreate(ctx) {
		if told != err.Error() {
			told = err.Error()
			o.Log.Warn("the certificate authority cannot be read; it is tried again", "where", o.Store.Place(), "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate authority in %s: %w", o.Store.Place(), err)
	}
	s, err := newSigner(c, a.now())
	if err != nil {
		return nil, fmt.Errorf("the certificate authority in %s: %w", c.Where, err)
	}
	a.take(s)
	return a, nil
}

// readOrCreate gives what the Store has, after it has something.
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
	return nil, errors.New("what was created there is gone at once")
}

// take puts a signer in force.
func (a *Authority) take(s *signer) {
	old := a.signer.Swap(s)
	a.mu.Lock()
	a.since = a.now()
	if old != nil && old.rootPEM != s.rootPEM {
		close(a.changed)
		a.changed = make(chan struct{})
	}
	a.mu.Unlock()
	a.opts.Log.Info("certificates are signed", "by", s.cert.Subject.String(), "from", s.contents.Where, "own", s.contents.Own,
		"expires", s.lasts().Format(time.RFC3339), "roots", len(s.roots))
}

// Run reads the Store again and again until ctx ends, and renews a root that was made here.
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

// look looks once. What is wrong is told when it begins, and when it is over.
func (a *Authority) look(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := a.refresh(within)
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	a.mu.Lock()
	old := a.problem
	a.problem = text
	a.mu.Unlock()
	switch {
	case text == old:
	case err != nil:
		a.opts.Log.Warn("the certificate authority stays as it was", "where", a.opts.Store.Place(), "error", text)
	default:
		a.opts.Log.Info("the certificate authority can be read again", "where", a.opts.Store.Place())
	}
}

// refresh takes up what has changed, and renews what has to be.
func (a *Authority) refresh(ctx context.Context) error {
	c, err := a.opts.Store.Read(ctx)
	if err != nil {
		return err
	}
	if c == nil {
		return errors.New("it is gone; put it back, or start again to have another root made")
	}
	now, s := a.now(), a.signer.Load()
	if c.Files.fingerprint() != s.stamp {
		if s, err = newSigner(c, now); err != nil {
			return fmt.Errorf("%s: %w", c.Where, err)
		}
		a.take(s)
	}
	if !c.Own || !selfSigned(s.cert) || now.Before(renewAt(s.cert, renewAfter)) {
		return nil
	}
	f, err := s.renewed(a.opts.RootTTL, now)
	if err != nil {
		return fmt.Errorf("%s: the root cannot be renewed: %w", c.Where, err)
	}
	// The next look takes up what comes of it, be it another control plane's.
	return a.opts.Store.Replace(ctx, c, f)
}

// Roots is what workloads are to trust, in PEM form. Changed is closed when that changes.
func (a *Authority) Roots() (roots string, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.signer.Load().rootPEM, a.changed
}

// Pool is the same, for checking certificates.
func (a *Authority) Pool() *x509.CertPool { return a.signer.Load().pool }

// Now is the time by which certificates are judged.
func (a *Authority) Now() time.Time { return a.now() }

// RootExpiry is when the first of the roots expires, and ChainExpiry when the signing
// certificate or one that leads to it does.
func (a *Authority) RootExpiry() time.Time { return a.signer.Load().roots[0].NotAfter }

// ChainExpiry is explained at RootExpiry.
func (a *Authority) ChainExpiry() time.Time { return a.signer.Load().lasts() }

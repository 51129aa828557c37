package sds

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/config/certfile"
)

// maxFileSecrets bounds the secrets in files that are served. Configurations have far fewer.
const maxFileSecrets = 1024

// Files serves secrets in files, under the names of package certfile. It reads the files that Envoy's subscriptions
// name, and no others. If a file is missing or invalid, Files reports that, keeps the last valid secret, and checks the
// file until it is valid. Run does the work; the other methods may be called from any goroutine.
type Files struct {
	log          *slog.Logger
	poll, settle time.Duration
	failures     prometheus.Counter
	asked        chan struct{} // holds one token after a change of the names that are used

	mu      sync.Mutex // guards the fields below
	wanted  map[string]*fileSecret
	changed chan struct{} // closed and replaced when a secret changes
}

// fileSecret is the state of one name.
type fileSecret struct {
	of      certfile.Secret
	users   int           // streams that subscribe to it; without any it is dropped
	good    *tlsv3.Secret // the last valid secret; nil: none yet
	expires time.Time     // the first expiry of good's certificates; zero: unknown
	leftOut string        // why good has not all certificates of the file; empty: it has
	problem string        // why the files are invalid now; empty: they are valid
	stamps  []stamp       // of the files when they were read; nil: not read
}

// NewFiles returns Files without names. The registry may already have Istio's counter of failures.
func NewFiles(r prometheus.Registerer, log *slog.Logger) (*Files, error) {
	f := &Files{
		log: log, poll: pollEvery, settle: settleFor, asked: make(chan struct{}, 1),
		wanted: map[string]*fileSecret{}, changed: make(chan struct{}),
	}
	var err error
	if f.failures, err = failureCounter(r); err != nil {
		return nil, err
	}
	return f, r.Register(fileCollector{f})
}

// want starts to serve a name, until drop. It returns false if there are too many.
func (f *Files) want(name string) bool {
	of, ok := certfile.Parse(name)
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s == nil && len(f.wanted) == maxFileSecrets {
		f.log.Error("too many secrets in files: listeners and clusters that use this one have no certificate", "name", name, "most", maxFileSecrets)
		return false
	}
	if s == nil {
		s = &fileSecret{of: of}
		f.wanted[name] = s
		f.wake()
	}
	s.users++
	return true
}

// drop undoes one want.
func (f *Files) drop(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s.users--; s.users == 0 {
		delete(f.wanted, name)
		f.wake()
	}
}

func (f *Files) wake() {
	select {
	case f.asked <- struct{}{}:
	default: // a token already waits
	}
}

// news returns a channel that is closed at the next change.
func (f *Files) news() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// get returns the secret of a name; nil if there is none.
func (f *Files) get(name string) *tlsv3.Secret {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.wanted[name]; s != nil {
		return s.good
	}
	return nil
}

// names returns the names that are served, sorted, with their files.
func (f *Files) names() (names []string, of map[string]certfile.Secret) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of = make(map[string]certfile.Secret, len(f.wanted))
	for name, s := range f.wanted {
		of[name] = s.of
	}
	return slices.Sorted(maps.Keys(of)), of
}

// same reports whether a secret was read from files that have not changed since.
func (f *Files) same(name string, now []stamp) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	return s != nil && s.stamps != nil && slices.EqualFunc(s.stamps, now, stamp.same)
}

// note stores the result of reading a secret's files.
func (f *Files) note(name string, stamps []stamp, read *tlsv3.Secret, leftOut string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	if s == nil {
		return
	}
	s.stamps = stamps
	if err != nil {
		f.fail(name, s, err.Error())
		return
	}
	if s.problem != "" {
		f.log.Info("the secret in files is valid again", "name", name)
	}
	s.problem = ""
	if leftOut != "" && leftOut != s.leftOut {
		f.log.Warn("a part of the CAs in a file is left out: certificates under them are refused", "name", name, "reasons", leftOut)
	}
	s.leftOut = leftOut
	if s.good != nil && versionOf(s.good) == versionOf(read) {
		return
	}
	s.good, s.expires = read, expiryOf(read)
	close(f.changed)
	f.changed = make(chan struct{})
}

// fail logs and counts a problem once.
func (f *Files) fail(name string, s *fileSecret, problem string) {
	if s.problem == problem {
		return
	}
	s.problem = problem
	f.failures.Inc()
	if s.good != nil {
		f.log.Error("the secret in files is invalid; the last valid one stays in force", "name", name, "reason", problem)
		return
	}
	f.log.Error("cannot read a secret from its files: listeners and clusters that use it have no certificate", "name", name, "reason", problem)
}

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

// maxFileSecrets is how many secrets in files are served: far more than people write.
const maxFileSecrets = 1024

// Files has the secrets in files that Envoy asks for, by the names of package certfile: it reads the files that
// these name, and no others. What is not there, or what Envoy would not take, is told, and what was good before stays;
// it is looked for until it is good. Run does the work; the rest may be called from anywhere.
type Files struct {
	log          *slog.Logger
	poll, settle time.Duration
	failures     prometheus.Counter
	asked        chan struct{} // holds one token where names were asked for, or given up

	mu      sync.Mutex // guards what follows
	wanted  map[string]*fileSecret
	changed chan struct{} // closed, and made anew, when what is served changes
}

// fileSecret is what is known of one name.
type fileSecret struct {
	of      certfile.Secret
	users   int           // streams that ask for it; without any it is forgotten
	good    *tlsv3.Secret // the last that was; nil: none was yet
	expires time.Time     // good's first certificate; zero: it is not known
	problem string        // with the files as they are; empty: none
	stamps  []stamp       // of the files as they were read; nil: they were not
}

// NewFiles makes Files that nobody has asked for yet, with their metrics. The registry may have Istio's counter of
// failures already.
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

// want begins to serve a name, until drop; false: it does not.
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

// drop undoes what want did.
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
	default: // who takes the token looks at all
	}
}

// news is a channel that is closed when something changes.
func (f *Files) news() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// get is what is served by a name; nil while there is nothing.
func (f *Files) get(name string) *tlsv3.Secret {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.wanted[name]; s != nil {
		return s.good
	}
	return nil
}

// names are those that are wanted, in order, with what they stand for.
func (f *Files) names() (names []string, of map[string]certfile.Secret) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of = make(map[string]certfile.Secret, len(f.wanted))
	for name, s := range f.wanted {
		of[name] = s.of
	}
	return slices.Sorted(maps.Keys(of)), of
}

// same tells whether a secret was read from files that are as they were.
func (f *Files) same(name string, now []stamp) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.wanted[name]
	return s != nil && s.stamps != nil && slices.EqualFunc(s.stamps, now, stamp.same)
}

// note takes what came of reading a secret's files.
func (f *Files) note(name string, stamps []stamp, read *tlsv3.Secret, err error) {
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
		f.log.Info("the secret in files is good again", "name", name)
	}
	s.problem = ""
	if s.good != nil && versionOf(s.good) == versionOf(read) {
		return
	}
	s.good, s.expires = read, expiryOf(read)
	close(f.changed)
	f.changed = make(chan struct{})
}

// fail tells of a problem once.
func (f *Files) fail(name string, s *fileSecret, problem string) {
	if s.problem == problem {
		return
	}
	s.problem = problem
	f.failures.Inc()
	if s.good != nil {
		f.log.Error("the secret in files is not taken; what was good before stays in force", "name", name, "reason", problem)
		return
	}
	f.log.Error("secret cannot be read from its files: listeners and clusters that use it have no certificate until it can", "name", name, "reason", problem)
}

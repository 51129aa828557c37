package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/model"
)

// TokenFile lists tokens, one a line: token,namespace,service-account. Empty lines and lines that begin with # are
// ignored. It is read again when it changes. If it is invalid, an error is logged and the last valid version applies.
type TokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex // guards the fields below
	at     stamp      // of the last version that was read; zero: read again
	tokens []listed
	failed bool // the last read
	errors logonce.Errors
}

// stamp distinguishes versions of a file.
type stamp struct {
	modified time.Time
	size     int64
}

// young is the age that a file must have for its stamp to be reliable: a later change within the same second may have
// the same time.
const young = time.Second

// listed is a token of the file, stored as a hash, so that all have one length.
type listed struct {
	sum                       [sha256.Size]byte
	namespace, serviceAccount string
}

// OpenTokenFile reads a file of tokens.
func OpenTokenFile(path string, log *slog.Logger) (*TokenFile, error) {
	f := &TokenFile{path: path, log: log}
	if err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// Kind implements Tokens.
func (f *TokenFile) Kind() string { return "token file" }

// Holder implements Tokens. It compares all tokens in constant time.
func (f *TokenFile) Holder(_ context.Context, token string) (namespace, serviceAccount string, err error) {
	sum := sha256.Sum256([]byte(token))
	found := -1
	tokens := f.current()
	for i := range tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], tokens[i].sum[:]), i, found)
	}
	if found < 0 {
		return "", "", ErrUnknown
	}
	return tokens[found].namespace, tokens[found].serviceAccount, nil
}

// current returns the present tokens.
func (f *TokenFile) current() []listed {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.read()
	if f.errors.New(err) {
		f.log.Warn("the tokens stay unchanged", "error", err)
	}
	f.failed = err != nil
	return f.tokens
}

// read reads the file if it has changed. mu is held, or f is not shared yet.
func (f *TokenFile) read() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	at := stamp{info.ModTime(), info.Size()}
	if at == f.at && !f.failed {
		return nil
	}
	b, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	tokens, err := parseTokens(string(b))
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if f.tokens != nil && !slices.Equal(f.tokens, tokens) {
		f.log.Info("tokens read again", "file", f.path, "tokens", len(tokens))
	}
	if f.tokens = tokens; time.Since(at.modified) < young {
		at = stamp{}
	}
	f.at = at
	return nil
}

func parseTokens(text string) ([]listed, error) {
	out := []listed{}
	lines := map[[sha256.Size]byte]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		l, err := parseToken(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if first := lines[l.sum]; first > 0 {
			return nil, fmt.Errorf("line %d: the same token as in line %d", n, first)
		}
		lines[l.sum] = n
		out = append(out, l)
	}
	return out, nil
}

// parseToken decodes a line. Errors do not contain the token.
func parseToken(line string) (listed, error) {
	p := strings.Split(line, ",")
	for i := range p {
		p[i] = strings.TrimSpace(p[i])
	}
	if len(p) != 3 {
		return listed{}, fmt.Errorf("%d fields: use token,namespace,service-account", len(p))
	}
	if p[0] == "" || strings.ContainsAny(p[0], " \t") {
		return listed{}, errors.New("the token is empty or contains a space")
	}
	if err := (model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: p[1], ServiceAccount: p[2]}).Check(); err != nil {
		return listed{}, err
	}
	return listed{sum: sha256.Sum256([]byte(p[0])), namespace: p[1], serviceAccount: p[2]}, nil
}

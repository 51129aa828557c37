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

	"github.com/moonsail/moonsail/internal/model"
)

// TokenFile lists tokens, one a line: token,namespace,service-account. Empty lines and those
// that begin with # say nothing. It is read again when it changes; one that is wrong is told,
// and the last one that was right counts.
type TokenFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex // guards what follows
	at     stamp      // of what was read last; zero: it must be read again
	tokens []listed
	told   string // what is wrong with it
}

// stamp tells versions of a file apart.
type stamp struct {
	modified time.Time
	size     int64
}

// young is how old a file must be at least for its stamp to tell its versions apart: a second
// change may have the time of the first.
const young = time.Second

// listed is a token of the file. Its hash is kept, so that all have one length.
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

// Holder implements Tokens. All tokens are compared, and none quicker for being alike.
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

// current are the tokens of now.
func (f *TokenFile) current() []listed {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := ""
	if err := f.read(); err != nil {
		text = err.Error()
	}
	if text != f.told && text != "" {
		f.log.Warn("the tokens stay as they were", "error", text)
	}
	f.told = text
	return f.tokens
}

// read reads the file where it has changed; mu is held, or nobody else has f.
func (f *TokenFile) read() error {
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	at := stamp{info.ModTime(), info.Size()}
	if at == f.at && f.told == "" {
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
		f.log.Info("tokens were read again", "file", f.path, "tokens", len(tokens))
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
			return nil, fmt.Errorf("line %d: it has the token of line %d", n, first)
		}
		lines[l.sum] = n
		out = append(out, l)
	}
	return out, nil
}

// parseToken reads a line; its errors do not tell the token.
func parseToken(line string) (listed, error) {
	p := strings.Split(line, ",")
	for i := range p {
		p[i] = strings.TrimSpace(p[i])
	}
	if len(p) != 3 {
		return listed{}, fmt.Errorf("it has %d fields instead of token,namespace,service-account", len(p))
	}
	if p[0] == "" || strings.ContainsAny(p[0], " \t") {
		return listed{}, errors.New("the token is empty, or has a space in it")
	}
	if err := (model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: p[1], ServiceAccount: p[2]}).Check(); err != nil {
		return listed{}, err
	}
	return listed{sum: sha256.Sum256([]byte(p[0])), namespace: p[1], serviceAccount: p[2]}, nil
}

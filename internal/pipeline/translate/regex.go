package translate

import (
	"errors"
	"fmt"
	"regexp"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
)

// regex checks that text is RE2, which is also Go's syntax.
func regex(text string) (*matcherv3.RegexMatcher, error) {
	if text == "" {
		return nil, errors.New("an empty regular expression matches nothing: leave it out, or write .*")
	}
	if _, err := regexp.Compile(text); err != nil {
		return nil, fmt.Errorf("%q is no RE2 regular expression: %w", text, err)
	}
	return &matcherv3.RegexMatcher{Regex: text}, nil
}

// substitution replaces what text matches; \1 to \9 are its groups, \0 all of it.
func substitution(text, to string) (*matcherv3.RegexMatchAndSubstitute, error) {
	pattern, err := regex(text)
	if err != nil {
		return nil, err
	}
	if err := envoyformat.CheckGroups(to, regexp.MustCompile(text).NumSubexp()); err != nil {
		return nil, err
	}
	return &matcherv3.RegexMatchAndSubstitute{Pattern: pattern, Substitution: to}, nil
}

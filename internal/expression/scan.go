package expression

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

type tokenKind uint8

const (
	endToken tokenKind = iota
	nameToken
	literalToken // a number, text, true, false or null
	operatorToken
)

type token struct {
	kind tokenKind
	text string
}

// String is for messages.
func (t token) String() string {
	if t.kind == endToken {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}

var (
	namePattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	numberPattern = regexp.MustCompile(`^(0x[0-9a-fA-F]+[uU]?|[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+[uU]?)`)
	textPattern   = regexp.MustCompile(`^[bB]?([rR]"[^"\n]*"|[rR]'[^'\n]*'|"([^"\\\n]|\\.)*"|'([^'\\\n]|\\.)*')`)
	operators     = []string{"||", "&&", "<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]", "{", "}"}
)

// scan cuts an expression into tokens; an endToken is the last.
func scan(text string) ([]token, error) {
	var out []token
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		t, err := first(rest)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
		rest = rest[len(t.text):]
	}
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	return append(out, token{kind: endToken}), nil
}

// first is the token that a text begins with.
func first(rest string) (token, error) {
	if m := textPattern.FindString(rest); m != "" {
		return token{literalToken, m}, nil
	}
	if m := numberPattern.FindString(rest); m != "" {
		return token{literalToken, m}, nil
	}
	if m := namePattern.FindString(rest); m != "" {
		return word(m), nil
	}
	for _, o := range operators {
		if strings.HasPrefix(rest, o) {
			return token{operatorToken, o}, nil
		}
	}
	if rest[0] == '"' || rest[0] == '\'' {
		return token{}, fmt.Errorf("the text that begins with %.20q does not end", rest)
	}
	return token{}, fmt.Errorf("%.20q is not expected", rest)
}

func word(text string) token {
	switch text {
	case "true", "false", "null":
		return token{literalToken, text}
	case "in":
		return token{operatorToken, text}
	}
	return token{nameToken, text}
}

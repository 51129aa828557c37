package cel

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
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

// escape is what may follow a backslash in texts.
const escape = "\\\\([abfnrtv\\\\?\"'`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"

var (
	namePattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	numberPattern = regexp.MustCompile(`^(0x[0-9a-fA-F]+[uU]?|[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+[uU]?)`)
	textPattern   = regexp.MustCompile(`^[bB]?([rR]"[^"\n]*"|[rR]'[^'\n]*'|"([^"\\\n]|` + escape + `)*"|'([^'\\\n]|` + escape + `)*')`)
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
		if !strings.ContainsAny(m, ".eE") || strings.HasPrefix(m, "0x") {
			if n, err := strconv.ParseUint(strings.TrimRight(m, "uU"), 0, 64); err != nil || n > 1<<63 && strings.TrimRight(m, "uU") == m {
				return token{}, fmt.Errorf("%s is too large a number", m)
			}
		}
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
		return token{}, fmt.Errorf("the text that begins with %.20q does not end, or has a backslash where CEL has none: write two for one, or r'...'", rest)
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

// textOf returns the value of a string literal. It is not ok for other literals, and for escapes that Go lacks.
func textOf(literal string) (string, bool) {
	if raw := strings.TrimLeft(literal, "rR"); raw != literal {
		return raw[1 : len(raw)-1], true
	}
	inner, ok := strings.CutPrefix(literal, "'")
	if !ok {
		text, err := strconv.Unquote(literal)
		return text, err == nil
	}
	inner = strings.NewReplacer(`\'`, "'", `\"`, `\"`, `\\`, `\\`, `"`, `\"`).Replace(strings.TrimSuffix(inner, "'"))
	text, err := strconv.Unquote(`"` + inner + `"`)
	return text, err == nil
}

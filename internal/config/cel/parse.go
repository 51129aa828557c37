// Package cel reads expressions of CEL as far as is needed to find what Envoy would
// refuse: their grammar, and the names in them. It computes nothing.
package cel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxDepth bounds how deep expressions nest; Envoy's own bound is 250.
const maxDepth = 100

// Check checks an expression about calls. Attributes are Envoy's.
func Check(text string) error {
	tokens, err := scan(text)
	if err != nil {
		return err
	}
	p := &parser{tokens: tokens}
	if err := p.expression(); err != nil {
		return err
	}
	if t := p.peek(); t.kind != endToken {
		return fmt.Errorf("%s is not expected", t)
	}
	return nil
}

// parser goes through tokens; the last one is an endToken.
type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != endToken {
		p.at++
	}
	return t
}

// take consumes the next token if it is one of some operators.
func (p *parser) take(operators ...string) bool {
	t := p.peek()
	if t.kind != operatorToken || !slices.Contains(operators, t.text) {
		return false
	}
	p.at++
	return true
}

func (p *parser) expect(operator string) error {
	if p.take(operator) {
		return nil
	}
	return fmt.Errorf("%q is missing before %s", operator, p.peek())
}

// expression is "a ? b : c", where b and c may be left out together.
func (p *parser) expression() error {
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("it nests deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	if err := p.binary(0); err != nil || !p.take("?") {
		return err
	}
	if err := p.binary(0); err != nil {
		return err
	}
	if err := p.expect(":"); err != nil {
		return err
	}
	return p.expression()
}

// levels are CEL's binary operators, those that bind least first.
var levels = [][]string{{"||"}, {"&&"}, {"<", "<=", ">=", ">", "==", "!=", "in"}, {"+", "-"}, {"*", "/", "%"}}

func (p *parser) binary(level int) error {
	if level == len(levels) {
		return p.unary()
	}
	for {
		if err := p.binary(level + 1); err != nil || !p.take(levels[level]...) {
			return err
		}
	}
}

func (p *parser) unary() error {
	for p.take("!", "-") {
		continue
	}
	if err := p.primary(); err != nil {
		return err
	}
	return p.members()
}

// members are what follows a value: fields, methods and indexes.
func (p *parser) members() error {
	for {
		switch {
		case p.take("."):
			if err := p.member(); err != nil {
				return err
			}
		case p.take("["):
			if err := p.expression(); err != nil {
				return err
			}
			if err := p.expect("]"); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (p *parser) member() error {
	name := p.next()
	switch {
	case name.kind != nameToken:
		return fmt.Errorf("a name is missing before %s", name)
	case !p.take("("):
		return nil
	case slices.Contains(macros, name.text):
		return fmt.Errorf("%q iterates over lists, which Envoy does not support: use the operator in, or compare each", name.text)
	case !slices.Contains(methods, name.text):
		return fmt.Errorf("%q is not a method: use one of %s", name.text, strings.Join(methods, ", "))
	}
	arguments := p.at
	n, err := p.list(")")
	if err != nil {
		return err
	}
	if least, most := methodArguments(name.text); n < least || n > most {
		return fmt.Errorf("%s takes %d arguments, not %d", name.text, most, n)
	}
	if name.text == "matches" {
		return checkPattern(p.tokens[arguments:p.at])
	}
	return nil
}

// methodArguments are how many arguments a method takes at least, and at most.
func methodArguments(name string) (least, most int) {
	switch {
	case name == "size":
		return 0, 0
	case strings.HasPrefix(name, "get"): // a time zone
		return 0, 1
	}
	return 1, 1
}

func (p *parser) primary() error {
	t := p.next()
	switch {
	case t.kind == literalToken:
		return nil
	case t.kind == nameToken:
		return p.name(t.text)
	case t.text == "(":
		if err := p.expression(); err != nil {
			return err
		}
		return p.expect(")")
	case t.text == "[":
		_, err := p.list("]")
		return err
	case t.text == "{":
		return p.entries()
	}
	return fmt.Errorf("a value is missing before %s", t)
}

// name is an attribute, a variable or a function.
func (p *parser) name(name string) error {
	if p.take("(") {
		if !slices.Contains(functions, name) {
			return fmt.Errorf("%q is not a function: use one of %s", name, strings.Join(functions, ", "))
		}
		return p.call(name)
	}
	if name == "re" && p.take(".") {
		return p.regexFunction()
	}
	if slices.Contains(attributes, name) {
		return nil
	}
	if slices.Contains(istioAttributes, name) {
		return fmt.Errorf("%q is an attribute of Istio's own filters, which Envoy does not have: use one of %s", name, strings.Join(attributes, ", "))
	}
	return fmt.Errorf("%q is not an attribute: use one of %s", name, strings.Join(attributes, ", "))
}

// regexFunction reads a call such as re.capture(text, pattern), after "re.". Envoy compiles patterns only when it
// evaluates the call.
func (p *parser) regexFunction() error {
	name := p.next()
	want, known := regexFunctions[name.text]
	if !known || !p.take("(") {
		return fmt.Errorf("re.%s is not a function: use re.%s", name.text, strings.Join(slices.Sorted(maps.Keys(regexFunctions)), ", re."))
	}
	n, err := p.list(")")
	if err == nil && n != want {
		return fmt.Errorf("re.%s takes %d arguments, not %d", name.text, want, n)
	}
	return err
}

// call reads the argument of a function. That of has is a field of something.
func (p *parser) call(name string) error {
	first := p.at
	n, err := p.list(")")
	switch {
	case err != nil:
		return err
	case n != 1:
		return fmt.Errorf("%s takes one argument, not %d", name, n)
	case name == "has" && !isField(p.tokens[first:p.at-1]):
		return errors.New(`has takes a field, as in has(request.referer); to check for a header, use "x-a" in request.headers`)
	}
	return nil
}

// isField reports whether tokens are of something's field, with nothing but fields and indexes before.
func isField(tokens []token) bool {
	n, depth := len(tokens), 0
	for _, t := range tokens {
		if t.kind != operatorToken {
			continue
		}
		switch t.text {
		case "(", "[":
			depth++
		case ")", "]":
			depth--
		case ".":
		default:
			if depth == 0 {
				return false
			}
		}
	}
	return n > 2 && tokens[n-1].kind == nameToken && tokens[n-2].text == "."
}

// list reads expressions up to an operator, and returns their number.
func (p *parser) list(end string) (n int, err error) {
	for ; !p.take(end); n++ {
		if err := p.expression(); err != nil {
			return n, err
		}
		if !p.take(",") {
			return n + 1, p.expect(end)
		}
	}
	return n, nil
}

// entries reads those of a map.
func (p *parser) entries() error {
	for !p.take("}") {
		if err := p.expression(); err != nil {
			return err
		}
		if err := p.expect(":"); err != nil {
			return err
		}
		if err := p.expression(); err != nil {
			return err
		}
		if !p.take(",") {
			return p.expect("}")
		}
	}
	return nil
}

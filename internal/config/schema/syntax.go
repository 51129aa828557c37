package schema

import (
	"fmt"
	"strings"
)

// causes are what a YAML parser's messages mean, by their beginning.
var causes = []struct{ message, cause string }{
	{"mapping values are not allowed", "a value has a colon and a space, or the line is indented too far: put the value in quotes, or correct the indentation"},
	{"could not find expected ':'", "the line is not a field: write NAME: VALUE"},
	{"did not find expected key", "the line does not continue what is above it: correct its indentation"},
	{"did not find expected '-' indicator", "the line does not continue the list above it: begin it with -, or correct its indentation"},
	{"did not find expected ',' or '}'", "a brace is not closed, or a comma is missing"},
	{"did not find expected ',' or ']'", "a bracket is not closed, or a comma is missing"},
	{"did not find expected node content", "a value is missing, or begins with a character that needs quotes"},
	{"found unexpected end of stream", "a quote is not closed"},
	{"found character that cannot start any token", "a value begins with a character that needs quotes: put it in quotes"},
	{"found undefined tag handle", "a value begins with !: put it in quotes"},
	{"did not find expected alphabetic or numeric character", "a value begins with * or &: put it in quotes"},
	{"unknown anchor", "a value begins with *: put it in quotes"},
	{"found unknown escape character", "a text in double quotes has a backslash: write two, or use single quotes"},
	{"block sequence entries are not allowed", "an element of a list begins on the line of its field: write it on the next line"},
	{"control characters are not allowed", "the file has a control character: remove it"},
	{"invalid leading UTF-8 octet", notUTF8}, {"invalid trailing UTF-8 octet", notUTF8}, {"incomplete UTF-8 octet sequence", notUTF8},
}

const notUTF8 = "the file is not text in UTF-8: convert it"

// SyntaxMessage is a YAML parser's error in words for a person.
func SyntaxMessage(err error) string { return SyntaxCause(err, "") }

// SyntaxCause is SyntaxMessage with a cause that is better known than from the error; empty: none.
func SyntaxCause(err error, cause string) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	message := text
	if at := lineOfError.FindStringIndex(text); at != nil && at[0] == 0 {
		message = strings.TrimPrefix(text[at[1]:], ": ")
	}
	for _, c := range causes {
		if cause == "" && strings.HasPrefix(message, c.message) {
			cause = c.cause
		}
	}
	if cause == "" {
		return "is not valid YAML: " + text
	}
	return fmt.Sprintf("is not valid YAML: %s (%s)", cause, text)
}

// TextMessage is SyntaxMessage for a document in a block of text, without its own line numbers.
func TextMessage(err error) string {
	line := lineOfError.FindString(err.Error())
	if line == "" {
		return SyntaxMessage(err)
	}
	return strings.Replace(SyntaxMessage(err), line+": ", "", 1)
}

package bugreport

import (
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Texts of ConfigMaps are YAML, templates of YAML, or code, and name a header or a variable beside its value.

// yamlDocuments removes secrets from a text, which may be YAML.
func (r *redactor) yamlDocuments(text string) string {
	var out strings.Builder
	for {
		at := separator.FindStringIndex(text)
		if at == nil {
			out.WriteString(r.lines(r.yaml(text)))
			return out.String()
		}
		out.WriteString(r.lines(r.yaml(text[:at[0]])))
		out.WriteString(text[at[0]:at[1]])
		text = text[at[1]:]
	}
}

// separator separates documents of YAML.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t].*)?\r?\n`)

// yaml removes secrets from a YAML document by its fields. It returns other texts, and documents without secrets, as they
// are. A document with secrets is written anew, without its comments.
func (r *redactor) yaml(text string) string {
	if !strings.Contains(text, ":") || !strings.ContainsAny(text, "\n{") {
		return text
	}
	doc, err := yaml.YAMLToJSON([]byte(text))
	if err != nil || len(doc) == 0 || doc[0] != '{' && doc[0] != '[' {
		return text
	}
	before := r.count
	doc, ok := r.json(doc)
	if !ok || r.count == before {
		return text
	}
	out, err := yaml.JSONToYAML(doc)
	if err != nil {
		return redacted
	}
	return string(out)
}

// pairs match the name of a header or a variable, and its value. The groups are what precedes the value, the name, and the value.
var pairs = []*regexp.Regexp{
	// YAML in two lines, of templates and of documents that were cut.
	regexp.MustCompile(`(\b(?:name|key):[ \t]*["']?([\w.-]+)["']?[ \t]*\r?\n[ \t]*value:[ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s"'][^\n]*)`),
	// Arguments of a function, and Envoy's log of headers.
	regexp.MustCompile(`(?m)((?:^|\()\s*["']([\w.-]+)["']\s*,\s*)("[^"\n]*"|'[^'\n]*')`),
}

// named removes values beside the name of a secret.
func (r *redactor) named(text string) string {
	for _, re := range pairs {
		text = re.ReplaceAllStringFunc(text, func(s string) string {
			m := re.FindStringSubmatch(s)
			value := strings.Trim(m[3], `"'`)
			if value == "" || strings.HasPrefix(value, redacted) || !isSecretVariable(m[2], value) {
				return s
			}
			r.count++
			return m[1] + redacted
		})
	}
	return text
}

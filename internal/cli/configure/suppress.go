package configure

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// suppression is a value of --suppress.
type suppression struct {
	code   string
	object *regexp.Regexp // of the text that objectText returns
}

// istioCode is a code of istioctl analyze. Moonsail may have no message for it.
var istioCode = regexp.MustCompile(`^IST\d{4}$`)

// parseSuppression reads CODE, or CODE=OBJECT, where an object is "KIND/NAME.NAMESPACE", with a space as in istioctl, or
// "KIND/NAMESPACE/NAME" as in messages.
func parseSuppression(text string) (suppression, error) {
	id, object, limited := strings.Cut(text, "=")
	id = strings.ToUpper(strings.TrimSpace(id))
	if _, known := code.PageOf(id); !known && !istioCode.MatchString(id) {
		return suppression{}, fmt.Errorf("unknown code %s%s: 'moonsail analyze --explain all' lists them", id, spelling.DidYouMean(id, codes()))
	}
	if !limited {
		object = "*"
	}
	switch parts := strings.FieldsFunc(object, func(r rune) bool { return r == '/' || r == ' ' }); {
	case object == "*":
	case len(parts) == 2:
		object = parts[0] + "/" + parts[1]
	case len(parts) == 3:
		object = parts[0] + "/" + parts[2] + "." + parts[1]
	default:
		return suppression{}, errors.New("write the object as KIND/NAME.NAMESPACE, with * for any text")
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(object), `\*`, ".*")
	return suppression{code: id, object: regexp.MustCompile("^" + pattern + "$")}, nil
}

func codes() []string {
	var out []string
	for _, p := range code.Pages() {
		out = append(out, string(p.Code))
	}
	return out
}

// suppresses reports whether --suppress leaves out a problem.
func (s *selection) suppresses(p problem.Problem) bool {
	return slices.ContainsFunc(s.suppressed, func(one suppression) bool {
		return isCode(one.code, p.Code) && one.object.MatchString(objectText(userKey(p.Object)))
	})
}

// objectText is an object as --suppress names it.
func objectText(k model.Key) string {
	text := string(k.Kind) + "/" + k.Name
	if k.Namespace != "" {
		text += "." + k.Namespace
	}
	return text
}

// annotationSuppresses reports whether the value of code.AnnotationSuppress contains a code.
func annotationSuppresses(value string, c code.Code) bool {
	return slices.ContainsFunc(strings.Split(value, ","), func(one string) bool {
		one = strings.TrimSpace(one)
		return one == "*" || one != "" && isCode(one, c)
	})
}

// isCode reports whether a text is a code, or one of istioctl analyze for the same mistake.
func isCode(text string, c code.Code) bool {
	if strings.EqualFold(text, string(c)) {
		return true
	}
	p, _ := code.PageOf(string(c))
	return slices.ContainsFunc(p.Istio, func(of string) bool { return strings.EqualFold(of, text) })
}

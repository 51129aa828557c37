package bugreport

import (
	"regexp"
	"slices"
	"strings"
)

// Variables and arguments of processes hold secrets under names that would be harmless elsewhere: DB_PASS, MY_KEY, --sasl-pwd.

// variableWords occur as parts of names of variables and flags with secrets.
var variableWords = regexp.MustCompile(`(?i)[-_.](pass|pwd|pw|psk|keys?|cred|creds|otp|pin|hmac|salt|sig|signature|seed|mnemonic|sas|dsn)\d*$|` +
	`[-_.](pass|pwd|psk|key|creds?)[-_.\d]|^(pass|psk|key|creds?)([-_.]|\d*$)|(?-i:[a-z](Pass|Pwd|Key)$)`)

// isSecretVariable reports whether the value of a variable or a flag is a secret. MY_KEY and PWD may be paths.
func isSecretVariable(name, value string) bool {
	if name == "PWD" || name == "OLDPWD" {
		return !isPath(value) // the working directory
	}
	return secretWords.MatchString(name) || variableWords.MatchString(name) && !isPath(value)
}

// isPath reports whether a value is a file's path.
func isPath(value string) bool {
	return strings.HasPrefix(value, "/") || strings.HasPrefix(value, "./") || strings.HasPrefix(value, "../")
}

// isSecretFlag reports whether the value of a flag is a secret.
func isSecretFlag(name, value string) bool {
	return isSecretVariable(name, value) && !harmless.MatchString(name) && value != "" && !strings.HasPrefix(value, redacted)
}

// argumentLists are the fields with arguments of processes.
var argumentLists = []string{"args", "command", "cmdline", "argv", "entrypoint"}

// arguments removes the values of flags from a list of arguments: of --name=value, and of --name followed by the value.
func (r *redactor) arguments(list []any) {
	previous := ""
	for i := range list {
		text, ok := list[i].(string)
		if !ok {
			previous = ""
			continue
		}
		flag := previous
		previous = ""
		switch name, value, assigned := strings.Cut(text, "="); {
		case flag != "" && !strings.HasPrefix(text, "-") && isSecretFlag(flag, text):
			list[i] = r.all(text)
		case assigned && isSecretFlag(strings.TrimLeft(name, "-"), value):
			r.count++
			list[i] = name + "=" + redacted
		case strings.HasPrefix(text, "-") && !assigned:
			previous = strings.TrimLeft(text, "-")
			list[i] = r.lines(text)
		default:
			list[i] = r.shaped(text)
		}
	}
}

// variable removes the value of a variable by its name or its form.
func (r *redactor) variable(name, value string) any {
	if isSecretVariable(name, value) {
		return r.all(value)
	}
	return r.shaped(value)
}

var (
	// random matches texts without spaces and dots that may be keys.
	random = regexp.MustCompile(`^[A-Za-z0-9+/_=-]{20,}$`)
	hex    = regexp.MustCompile(`^[0-9a-fA-F]{32,}$`)
)

// shaped removes a text that looks random, as keys do: of 32 or more hexadecimal digits, or of 20 or more letters of both cases and digits.
func (r *redactor) shaped(text string) any {
	name, value, assigned := strings.Cut(text, "=")
	if !assigned || !strings.HasPrefix(name, "-") {
		name, value = "", text
	}
	mixed := strings.ContainsAny(value, "0123456789") && strings.ToLower(value) != value && strings.ToUpper(value) != value
	if hex.MatchString(value) || random.MatchString(value) && mixed && !isPath(value) {
		r.count++
		if name != "" {
			return name + "=" + redacted
		}
		return redacted
	}
	return r.lines(text)
}

// isArguments reports whether a field has the arguments of a process.
func isArguments(key string) bool { return slices.Contains(argumentLists, strings.ToLower(key)) }

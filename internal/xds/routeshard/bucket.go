// Package routeshard splits the hosts of a route configuration into buckets, so that Envoy
// rebuilds one of them where one host's routes change. It is pure, and below the packages
// that decide on buckets, those that spell them for Envoy and those that read them.
package routeshard

import (
	"fmt"
	"strings"
)

// A bucket is a pure function of a request's host that both Envoy, in
// CEL, and we can compute. Envoy's CEL has no hash and no arithmetic on characters, but
// it has RE2: a regular expression is a bit, true where the number of characters of a set
// is even. So a bucket is the exclusive or of its characters' vectors, and of one of its first
// and last character, and every string has one.
//
// What is hashed is the region: of names the first label, so that all aliases of a service
// (reviews, reviews.shop, reviews.shop.svc.cluster.local:9080) share a bucket; of IPv4
// addresses all octets, and of IPv6 addresses all between the brackets, as those of a
// cluster's services begin with the same. Case and port do not matter.
//
// Addresses have buckets of their own, behind those of names: a service with both is in two
// buckets, and each would otherwise be twice as large.

// MaxBits bounds a number of buckets: 2^MaxBits for names, and as many for addresses.
const MaxBits = 9

// Bits are those of route configurations that are split.
const Bits = 8

// edgeBit is the first bit that looks at the first and the last character of the region alone,
// and is 0 where both are in its set or neither is. Bits that count do not tell svc-0012 from
// svc-0021.
const edgeBit = 7

// bitSets are the characters that count, by bit. Envoy bounds a regular expression in CEL
// to a program of 100 instructions, so they are few ranges. They were chosen for how evenly
// they spread numbered names, words and addresses (bucket_test.go).
var bitSets = [MaxBits]struct{ letters, digits string }{
	{"bciklu-w", "0-289"},
	{"b-eg-kt-v", "15-9"},
	{"abk-np-syz", "2-46-8"},
	{"d-hl-ox", "079"},
	{"e-my", "0135-7"},
	{"cdp-su-y", "1-478"},
	{"g-ilmt-z", "125-8"},
	{"a-m", "0-4"},
	{"e-r", "0-15-7"},
}

// kind is a kind of host: which region it has.
type kind uint8

const (
	name kind = iota
	ipv4      // also whatever else begins with a character up to 9
	ipv6
)

func kindOf(host string) kind {
	switch {
	case host > "[~":
		return name
	case host < ":":
		return ipv4
	case host[0] == '[':
		return ipv6
	}
	return name
}

// region is the part of a host that decides.
func region(host string) string {
	switch kindOf(host) {
	case ipv4:
		return upTo(host, func(c byte) bool { return (c < '0' || c > '9') && c != '.' })
	case ipv6:
		return upTo(host[1:], func(c byte) bool { return c == ']' })
	}
	return upTo(host, func(c byte) bool { return c == '.' || c == ':' })
}

func upTo(s string, end func(byte) bool) string {
	for i := range len(s) {
		if end(s[i]) {
			return s[:i]
		}
	}
	return s
}

// Count is how many there are.
func Count(bits int) int { return 2 << bits }

// Of is the bucket of a host: below 2^bits for names, from there on for addresses.
func Of(host string, bits int) (sum int) {
	r := region(host)
	for i := range bits {
		if !isZero(r, i) {
			sum |= 1 << i
		}
	}
	if kindOf(host) != name {
		sum += 1 << bits
	}
	return sum
}

// isZero is what the regular expression of a bit says. They know ASCII only.
func isZero(region string, bit int) bool {
	n := 0
	if bit >= edgeBit && region == "" {
		return false
	}
	for _, c := range []byte(region) {
		if c >= 0x80 {
			return false
		}
		if memberOf(bit, c) {
			n++
		}
	}
	if bit >= edgeBit {
		return memberOf(bit, region[0]) == memberOf(bit, region[len(region)-1])
	}
	return n%2 == 0
}

func memberOf(bit int, c byte) bool {
	set := bitSets[bit]
	return inRanges(set.digits, c) || inRanges(set.letters, c) || ('A' <= c && c <= 'Z' && inRanges(set.letters, c+'a'-'A'))
}

// inRanges tells whether a class as in "a-cx" has a character.
func inRanges(class string, c byte) bool {
	for i := 0; i < len(class); i++ {
		low, high := class[i], class[i]
		if i+2 < len(class) && class[i+1] == '-' {
			high = class[i+2]
			i += 2
		}
		if low <= c && c <= high {
			return true
		}
	}
	return false
}

// Expression is the same function of a request's host as a CEL expression: a sum of powers
// of two for each kind of host.
func Expression(bits int) string {
	sum := func(k kind) string {
		var terms []string
		for i := range bits {
			terms = append(terms, fmt.Sprintf("(request.host.matches('%s') ? 0 : %d)", bitPattern(k, i), 1<<i))
		}
		if k != name {
			terms = append(terms, fmt.Sprint(1<<bits))
		}
		return "(" + strings.Join(terms, " + ") + ")"
	}
	// Most hosts begin with a small letter, and are told by the first comparison.
	return fmt.Sprintf("request.host > '[~' ? %[3]s : request.host < ':' ? %[1]s : request.host.startsWith('[') ? %[2]s : %[3]s",
		sum(ipv4), sum(ipv6), sum(name))
}

// NamePattern is the regular expression, in a CEL string, that matches the names whose
// bucket has no bit i.
func NamePattern(i int) string { return bitPattern(name, i) }

// bitPattern matches the hosts of a kind whose bucket has no bit i. One that counts matches (others,
// or a member, others and another member) any number of times; one of edges a member, or other,
// and the same at the end. Then comes the end of the region: ending anywhere else would say
// nothing.
func bitPattern(k kind, i int) string {
	var begin, skip, end string
	lower, upper := byte(0), byte(0x7f)
	switch k {
	case name:
		skip, end = ".:", "(?:[.:]|$)"
	case ipv4:
		lower, upper, end = '.', '9', "(?:[^.0-9]|$)"
		skip = "/"
	case ipv6:
		begin, skip, end = "[[]", "]", "(?:[]]|$)"
	}
	in := class(lower, upper, func(c byte) bool { return memberOf(i, c) })
	inside := class(lower, upper, func(c byte) bool { return !strings.ContainsRune(skip, rune(c)) })
	others := class(lower, upper, func(c byte) bool { return !memberOf(i, c) && !strings.ContainsRune(skip, rune(c)) })
	if i >= edgeBit {
		return fmt.Sprintf("^%[1]s(?:%[2]s(?:%[4]s*%[2]s)?|%[3]s(?:%[4]s*%[3]s)?)%[5]s", begin, in, others, inside, end)
	}
	return fmt.Sprintf("^%s(?:%s|%s%s*%s)*%s", begin, others, in, others, in, end)
}

// class is a character class of the characters of a range that a condition holds for.
func class(lower, upper byte, has func(byte) bool) string {
	var b strings.Builder
	for c := int(lower); c <= int(upper); c++ {
		if !has(byte(c)) {
			continue
		}
		first := c
		for c < int(upper) && has(byte(c+1)) {
			c++
		}
		fmt.Fprintf(&b, `\\x%02x-\\x%02x`, first, c)
	}
	return "[" + b.String() + "]"
}

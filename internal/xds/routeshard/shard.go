// Package routeshard divides the virtual hosts of a large route configuration into shards, so that
// Envoy rebuilds one shard if the routes of a host change. It is pure. The packages that decide on
// shards, encode them for Envoy and decode them all use it.
package routeshard

import (
	"fmt"
	"strings"
)

// The shard of a request is a pure function of its host, which Envoy computes in CEL and this
// package in Go. CEL in Envoy has no hash and no arithmetic on characters, but it has RE2. A
// regular expression is one bit: it matches if the number of characters from a set is even. The
// shard number is thus the exclusive or of the bit vectors of the characters, and of a vector for
// the first and last character. Every string has a shard.
//
// The hash covers the region of a host. For names it is the first label, so that all aliases of a
// service (reviews, reviews.shop, reviews.shop.svc.cluster.local:9080) share a shard. For IPv4
// addresses it is all octets, and for IPv6 addresses everything between the brackets, as the
// addresses of a cluster's services begin alike. Case and port do not matter.
//
// Addresses have separate shards, after those of names. A service with both is in two shards;
// otherwise each shard would be twice as large.

// MaxBits bounds the number of shards: 2^MaxBits for names, and as many for addresses.
const MaxBits = 9

// Bits is the number of bits of route configurations that are sharded.
const Bits = 8

// edgeBit is the first bit that depends only on the first and the last character of the region. It
// is 0 if both are in its set, or neither is. Bits that count characters do not distinguish
// svc-0012 from svc-0021.
const edgeBit = 7

// bitSets are the characters that count, by bit. Envoy limits a regular expression in CEL to 100
// instructions, so each set consists of few ranges. They spread numbered names, words and addresses
// evenly (shard_test.go).
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

// kind is a kind of host. It determines the region.
type kind uint8

const (
	name kind = iota
	ipv4      // also everything else that begins with a character up to 9
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

// region returns the part of a host that determines its shard.
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

// Count returns the number of shards.
func Count(bits int) int { return 2 << bits }

// Of returns the shard of a host: below 2^bits for names, from 2^bits for addresses.
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

// isZero reports whether the regular expression of a bit matches. The expressions match ASCII only.
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

// inRanges reports whether a class such as "a-cx" contains a character.
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

// Expression returns Of as a CEL expression of a request's host: a sum of powers of two for each
// kind of host.
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
	// Most hosts begin with a small letter, which the first comparison decides.
	return fmt.Sprintf("request.host > '[~' ? %[3]s : request.host < ':' ? %[1]s : request.host.startsWith('[') ? %[2]s : %[3]s",
		sum(ipv4), sum(ipv6), sum(name))
}

// NamePattern returns the regular expression, in a CEL string, that matches the names whose shard
// has bit i unset.
func NamePattern(i int) string { return bitPattern(name, i) }

// bitPattern returns the expression that matches the hosts of a kind whose shard has bit i unset.
// For a bit that counts it is (others | member others* member) repeated. For an edge bit it is a
// member or another character, and the same at the end. The end of the region follows, as the
// expression must match the whole region.
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

// class returns the character class of the characters of a range that satisfy a condition.
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

package routes

import (
	"fmt"
	"strings"
)

// Buckets of hosts. A bucket is a pure function of a request's host that both Envoy, in
// CEL, and we can compute. Envoy's CEL has no hash and no arithmetic on characters, but
// it has RE2: one regular expression is a bit, true where the number of characters of a
// set is even. So the bucket is the exclusive or of the characters' vectors: linear in the
// name's length, and every string has one.
//
// What is hashed is the region: of names the first label, so that all aliases of a service
// (reviews, reviews.shop, reviews.shop.svc.cluster.local:9080) share a bucket; of IPv4
// addresses all octets, and of IPv6 addresses all between the brackets, as the first
// label would be the same for all ClusterIPs. Case and port do not matter.

// MaxBits bounds a number of buckets: 2^MaxBits.
const MaxBits = 8

const letters = "abcdefghijklmnopqrstuvwxyz"

// vector is a character's share of the bucket; other characters have none. The numbers
// are those that spread consecutive numbers and English words well (bucket_test.go).
func vector(c byte) uint {
	switch {
	case '0' <= c && c <= '9':
		return uint(digitVectors[c-'0'])
	case 'A' <= c && c <= 'Z':
		return uint(letterVectors[c-'A'])
	case 'a' <= c && c <= 'z':
		return uint(letterVectors[c-'a'])
	}
	return 0
}

var (
	digitVectors  = [10]byte{0x01, 0x02, 0x04, 0x08, 0x10, 0x2f, 0x53, 0x95, 0x6a, 0xbc}
	letterVectors = [26]byte{
		0x1d, 0x32, 0x57, 0x8b, 0x2e, 0xc4, 0x79, 0x96, 0x4d, 0xa3, 0x68, 0xf1, 0x0e,
		0xb7, 0x5a, 0xe5, 0x93, 0x7c, 0x29, 0xd6, 0x84, 0x3b, 0xcf, 0x61, 0x1a, 0xe8,
	}
)

// Bucket is the bucket of a host, one of 2^bits.
func Bucket(host string, bits int) int {
	var sum uint
	for _, c := range []byte(region(host)) {
		sum ^= vector(c)
	}
	return int(sum & (1<<bits - 1)) //nolint:gosec // it has MaxBits
}

// region is the part of a host that decides.
func region(host string) string {
	switch {
	case host == "":
		return ""
	case host[0] == '[':
		return upTo(host[1:], func(c byte) bool { return c == ']' })
	case isDigit(host[0]):
		return upTo(host, func(c byte) bool { return !isDigit(c) && c != '.' })
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

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// bucketExpression is the same as a CEL expression: a sum of powers of two.
func bucketExpression(bits int) string {
	terms := make([]string, bits)
	for i := range terms {
		terms[i] = fmt.Sprintf("(request.host.matches('%s') ? 0 : %d)", bitPattern(i), 1<<i)
	}
	return strings.Join(terms, " + ")
}

// bitPattern matches the hosts whose bucket has no bit i. Each kind of region is one
// alternative; the first character tells them apart. All end where the region ends, as
// the parity of a part of it says nothing.
func bitPattern(i int) string {
	digits, word := membersOf("0123456789", i), membersOf("0123456789"+letters, i)
	return "(?i)^(?:" +
		`\[` + even(word, `\]`) + `(?:\]|$)|` +
		startingWith("0123456789", digits, even(digits, notIn("0-9.")), odd(digits, notIn("0-9."))) + `(?:[^0-9.]|$)|` +
		startingWith(letters, word, even(word, ".:"), odd(word, ".:")) + `(?:[.:]|$)|` +
		`[^\[0-9a-z.:]` + even(word, ".:") + `(?:[.:]|$)|` +
		`(?:[.:]|$))`
}

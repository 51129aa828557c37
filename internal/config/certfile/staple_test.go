package certfile_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/certfile"
)

// TestCheckStaple checks responses that "openssl ocsp" made.
func TestCheckStaple(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		return text
	}
	chain, good := read("stapled.pem"), read("staple.der")
	for name, tc := range map[string]struct {
		chain, staple []byte
		want          string
	}{
		"of the certificate":             {chain, good, ""},
		"of a chain":                     {append(chain[:len(chain):len(chain)], chain...), good, ""},
		"of another certificate":         {chain, read("staple-of-another.der"), "is not for the certificate alone"},
		"of the certificate and another": {chain, read("staple-of-two.der"), "is not for the certificate alone"},
		"with a tail":                    {chain, append(good[:len(good):len(good)], 0), "is not an OCSP response in DER"},
		"cut off":                        {chain, good[:100], "is not an OCSP response in DER"},
		"in PEM":                         {chain, chain, "is not an OCSP response in DER"},
		"of an error (tryLater)":         {chain, []byte{0x30, 3, 0x0a, 1, 3}, "is an OCSP response that reports an error"},
		"without a body":                 {chain, []byte{0x30, 3, 0x0a, 1, 0}, "is not a basic OCSP response"},
		"without a certificate":          {nil, good, "has no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			err := certfile.CheckStaple(tc.chain, tc.staple)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
}

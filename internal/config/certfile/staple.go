package certfile

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"time"
)

// ocspResponse is an OCSPResponse of RFC 6960.
type ocspResponse struct {
	Status asn1.Enumerated
	Body   struct {
		Type  asn1.ObjectIdentifier
		Basic []byte
	} `asn1:"explicit,tag:0,optional"`
}

// basicResponse is a BasicOCSPResponse.
type basicResponse struct {
	Data struct {
		Version    int `asn1:"explicit,tag:0,default:0,optional"`
		Responder  asn1.RawValue
		ProducedAt time.Time `asn1:"generalized"`
		Responses  []struct {
			ID struct {
				Hash              pkix.AlgorithmIdentifier
				NameHash, KeyHash []byte
				Serial            *big.Int
			}
			Status     asn1.RawValue
			ThisUpdate time.Time        `asn1:"generalized"`
			NextUpdate time.Time        `asn1:"generalized,explicit,tag:0,optional"`
			Extensions []pkix.Extension `asn1:"explicit,tag:1,optional"`
		}
		Extensions []pkix.Extension `asn1:"explicit,tag:1,optional"`
	}
	Algorithm    pkix.AlgorithmIdentifier
	Signature    asn1.BitString
	Certificates []asn1.RawValue `asn1:"explicit,tag:0,optional"`
}

var basicType = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}

// CheckStaple checks an OCSP response in DER. With one that fails, Envoy refuses the whole certificate. The response must
// report success, and be for the first certificate of the chain alone. Clients check its signature and its age.
func CheckStaple(chain, staple []byte) error {
	block, _ := pem.Decode(chain)
	if block == nil {
		return errors.New("has no certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return errors.New("has no certificate that can be read")
	}
	var response ocspResponse
	var basic basicResponse
	if rest, err := asn1.Unmarshal(staple, &response); err != nil || len(rest) > 0 {
		return errors.New("is not an OCSP response in DER")
	}
	if response.Status != 0 {
		return errors.New("is an OCSP response that reports an error")
	}
	if !response.Body.Type.Equal(basicType) {
		return errors.New("is not a basic OCSP response")
	}
	if _, err := asn1.Unmarshal(response.Body.Basic, &basic); err != nil {
		return errors.New("is not an OCSP response in DER")
	}
	if list := basic.Data.Responses; len(list) != 1 || list[0].ID.Serial.Cmp(leaf.SerialNumber) != 0 {
		return errors.New("is not for the certificate alone")
	}
	return nil
}

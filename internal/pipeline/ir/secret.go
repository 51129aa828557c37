package ir

import "github.com/moonsail/moonsail/internal/model"

// Secret is a certificate with its key, or certificates of CAs.
type Secret struct {
	Made

	Name        string // "kubernetes://api-client", of CAs with "-cacert"
	Certificate string // a chain in PEM; empty: CA is set
	PrivateKey  model.PrivateKey
	CA, CRL     string // in PEM
}

// The program echoimage writes the image of the conformance suite's servers in the mesh: Istio's echo server and client,
// with a certificate for the server.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: echoimage ARCHIVE TAG SERVER CLIENT")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// file is an entry of an archive.
type file struct {
	name    string
	content []byte
	mode    int64
}

// write writes the archive in the format of docker save, which containerd imports.
func write(archive, tag, server, client string) error {
	cert, key, err := certificate()
	if err != nil {
		return err
	}
	files := []file{{"cert.crt", cert, 0o644}, {"cert.key", key, 0o644}}
	for name, program := range map[string]string{"server": server, "client": client} {
		content, err := os.ReadFile(filepath.Clean(program))
		if err != nil {
			return err
		}
		files = append(files, file{name, content, 0o755})
	}
	layer, err := archiveOf(files)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/server"}, "Env": []string{"PATH=/"}, "User": "1000:1000", "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{tag}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out, err := archiveOf([]file{{"manifest.json", manifest, 0o644}, {"config.json", config, 0o644}, {"layer.tar", layer, 0o644}})
	if err != nil {
		return err
	}
	return os.WriteFile(archive, out, 0o600)
}

func archiveOf(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// certificate returns a certificate that signs itself, with its key. No test verifies it.
func certificate() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "echo"}, DNSNames: []string{"echo"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return block("CERTIFICATE", der), block("PRIVATE KEY", secret), nil
}

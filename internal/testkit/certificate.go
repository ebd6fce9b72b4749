package testkit

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"
)

// Authority issues certificates for the tests of one run.
type Authority struct {
	Cert *x509.Certificate
	Key  *rsa.PrivateKey
}

// NewAuthority makes one that nobody else trusts.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{}
	a.Cert, a.Key = a.Issue(tb, &x509.Certificate{Subject: pkix.Name{CommonName: "Throw-away CA"}, IsCA: true, BasicConstraintsValid: true})
	return a
}

// Issue completes and signs c, which is valid for an hour where it doesn't say.
func (a *Authority) Issue(tb testing.TB, c *x509.Certificate) (*x509.Certificate, *rsa.PrivateKey) {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	if c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60)); err != nil {
		tb.Fatal(err)
	}
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, with := c, key
	if a.Cert != nil {
		parent, with = a.Cert, a.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, with)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert, key
}

// CertificatePassword opens the file of DeveloperID.
const CertificatePassword = "secret"

// DeveloperID is the file of a certificate that calls itself Developer ID, with
// key and chain, as Keychain Access exports it.
func (a *Authority) DeveloperID(tb testing.TB) string {
	tb.Helper()
	cert, key := a.Issue(tb, &x509.Certificate{
		Subject:         pkix.Name{CommonName: "Developer ID Application: Nobody (TEAM123456)", OrganizationalUnit: []string{"TEAM123456"}},
		KeyUsage:        x509.KeyUsageDigitalSignature,
		ExtKeyUsage:     []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 1, 13}, Critical: true, Value: []byte{5, 0}}},
	})
	data, err := pkcs12.Modern.Encode(key, cert, []*x509.Certificate{a.Cert}, CertificatePassword)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Join(tb.TempDir(), "id.p12")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

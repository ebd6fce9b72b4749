package codesign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"
	"software.sslmate.com/src/go-pkcs12"
)

// Identity is a certificate with its key, and the certificates above it.
type Identity struct {
	Certificate *x509.Certificate
	Chain       []*x509.Certificate // its issuer first
	Team        string              // the certificate's organisational unit
	key         crypto.Signer
}

// Attributes of Apple's signatures, and what marks its certificates.
var (
	oidHashesPlist      = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 9, 1}
	oidHashes           = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 9, 2}
	oidSHA256           = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}
	oidTimestamp        = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 14}
	oidDeveloperID      = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 1, 13} // of "Developer ID Application" certificates
	errIncompleteChain  = errors.New("the file lacks the certificate that issued it: export it together with its chain")
	errNoSigningPurpose = errors.New("it is not for signing code")
)

// CertificateError is a certificate that can't be read or used.
type CertificateError struct {
	File string
	Err  error
}

func (e *CertificateError) Error() string {
	return fmt.Sprintf("reading the certificate in %s: %v", e.File, e.Err)
}
func (e *CertificateError) Unwrap() error { return e.Err }

// LoadIdentity reads a PKCS #12 file (.p12, .pfx), as Keychain Access exports it.
func LoadIdentity(file, password string) (*Identity, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &CertificateError{file, err}
	}
	key, leaf, chain, err := pkcs12.DecodeChain(data, password)
	if err != nil {
		return nil, &CertificateError{file, err}
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, &CertificateError{file, errors.New("its key can't sign")}
	}
	id, err := NewIdentity(leaf, signer, chain)
	if err != nil {
		return nil, &CertificateError{file, fmt.Errorf("%q: %w", leaf.Subject.CommonName, err)}
	}
	return id, nil
}

// NewIdentity checks that the certificate is for signing code, is valid today,
// and that a Developer ID certificate has its issuer with it.
func NewIdentity(leaf *x509.Certificate, key crypto.Signer, chain []*x509.Certificate) (*Identity, error) {
	id := &Identity{Certificate: leaf, key: key}
	if !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) {
		return nil, errNoSigningPurpose
	}
	if now := time.Now(); now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return nil, fmt.Errorf("it is valid from %s to %s", leaf.NotBefore.Format(time.DateOnly), leaf.NotAfter.Format(time.DateOnly))
	}
	if len(leaf.Subject.OrganizationalUnit) > 0 {
		id.Team = leaf.Subject.OrganizationalUnit[0]
	}
	for next := leaf; !bytes.Equal(next.RawIssuer, next.RawSubject); {
		i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, next.RawIssuer) })
		if i < 0 {
			break
		}
		next, chain = chain[i], slices.Delete(slices.Clone(chain), i, i+1)
		id.Chain = append(id.Chain, next)
	}
	if id.DeveloperID() && len(id.Chain) == 0 {
		return nil, errIncompleteChain
	}
	return id, nil
}

// DeveloperID says whether Apple issued the certificate for software that is
// not sold in its store; other certificates can't be notarised.
func (id *Identity) DeveloperID() bool {
	for _, e := range id.Certificate.Extensions {
		if e.Id.Equal(oidDeveloperID) {
			return true
		}
	}
	return false
}

// rootFirst is the chain in the order that designated requirements count it.
func (id *Identity) rootFirst() []*x509.Certificate {
	all := append([]*x509.Certificate{id.Certificate}, id.Chain...)
	slices.Reverse(all)
	return all
}

// room is what the CMS part of a signature may need, in bytes.
func (id *Identity) room(stamped bool) int {
	size := 4096
	for _, c := range id.rootFirst() {
		size += len(c.Raw)
	}
	if stamped {
		size += 12 << 10
	}
	return size
}

// sign gives the CMS signature of a code directory, which stands beside it.
func (id *Identity) sign(ctx context.Context, directory []byte, authority string) ([]byte, error) {
	hash := sha256.Sum256(directory)
	plist := `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0"><dict><key>cdhashes</key><array><data>` +
		base64.StdEncoding.EncodeToString(hash[:20]) + `</data></array></dict></plist>` + "\n"
	sd, err := pkcs7.NewSignedData(directory)
	if err != nil {
		return nil, err
	}
	sd.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	err = sd.AddSignerChain(id.Certificate, id.key, id.Chain, pkcs7.SignerInfoConfig{ExtraSignedAttributes: []pkcs7.Attribute{
		{Type: oidHashesPlist, Value: []byte(plist)},
		{Type: oidHashes, Value: struct {
			Kind asn1.ObjectIdentifier
			Hash []byte
		}{oidSHA256, hash[:]}},
	}})
	if err != nil {
		return nil, err
	}
	if authority != "" {
		signer := &sd.GetSignedData().SignerInfos[0]
		token, err := stamp(ctx, authority, signer.EncryptedDigest)
		if err != nil {
			return nil, &TimestampError{authority, err}
		}
		if err := signer.SetUnauthenticatedAttributes([]pkcs7.Attribute{{Type: oidTimestamp, Value: asn1.RawValue{FullBytes: token}}}); err != nil {
			return nil, err
		}
	}
	sd.Detach()
	return sd.Finish()
}

// TimestampError is a time-stamping authority that gave no usable answer.
type TimestampError struct {
	URL string
	Err error
}

func (e *TimestampError) Error() string {
	return fmt.Sprintf("asking %s for a timestamp: %v", e.URL, e.Err)
}
func (e *TimestampError) Unwrap() error { return e.Err }

const stampTimeout = 30 * time.Second

// stamp asks an authority for a timestamp of a signature (RFC 3161, over HTTP)
// and checks that the answer is about it.
func stamp(ctx context.Context, url string, signature []byte) ([]byte, error) {
	nonce, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(signature)
	ask, err := (&timestamp.Request{HashAlgorithm: crypto.SHA256, HashedMessage: hash[:], Certificates: true, Nonce: nonce}).Marshal()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stampTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(ask))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/timestamp-query")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	got, err := timestamp.ParseResponse(body)
	switch {
	case err != nil:
		return nil, err
	case !bytes.Equal(got.HashedMessage, hash[:]) || got.Nonce == nil || got.Nonce.Cmp(nonce) != 0:
		return nil, errors.New("the answer is for another question")
	}
	return got.RawToken, nil
}

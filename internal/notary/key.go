package notary

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Key is an App Store Connect key of a team.
type Key struct {
	ID, Issuer string
	private    *ecdsa.PrivateKey
}

// LoadKey reads a key as App Store Connect gives it: AuthKey_ID.p8, a P-256 key
// in PKCS #8.
func LoadKey(file, id, issuer string) (Key, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Key{}, fmt.Errorf("reading the notary's key: %w", err)
	}
	private, err := parseKey(data)
	if err != nil {
		return Key{}, fmt.Errorf("reading the notary's key in %s: %w", file, err)
	}
	return Key{ID: id, Issuer: issuer, private: private}, nil
}

func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it is no PEM file")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("it is no key of the curve P-256")
	}
	return private, nil
}

// tokenLife is below the 20 minutes that the service allows.
const tokenLife = 10 * time.Minute

// token proves for a while who asks (JWT, ES256).
func (k Key) token(now time.Time) (string, error) {
	if k.private == nil {
		return "", errors.New("no key of App Store Connect was given")
	}
	t := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": k.Issuer, "iat": now.Unix(), "exp": now.Add(tokenLife).Unix(), "aud": "appstoreconnect-v1",
	})
	t.Header["kid"] = k.ID
	return t.SignedString(k.private)
}

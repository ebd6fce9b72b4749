// Package notarytest is Apple's notary service and its store, for tests: it
// checks who asks, what is declared and what arrives.
package notarytest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/golang-jwt/jwt/v5"
)

// The key that the service knows.
const (
	KeyID  = "K1"
	Issuer = "issuer-1"
)

// Service answers as Apple's does. Its fields are read and set under Lock.
type Service struct {
	sync.Mutex
	URL, Upload string
	Answers     []string // one a question for the status; the last one stays; a number is a status of HTTP
	Issues      []map[string]any
	Submits     int
	Declared    string                      // digest of the last submission
	Uploaded    string                      // digest of what arrived
	Asked       func(n int)                 // called at each question, when not nil
	Harm        func(w http.ResponseWriter) // in place of storing

	tb   testing.TB
	key  *ecdsa.PrivateKey
	asks int
}

// New starts a service that ends with the test.
func New(tb testing.TB, answers ...string) *Service {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	f := &Service{tb: tb, key: key, Answers: answers}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /submissions", f.api(f.submit))
	mux.HandleFunc("GET /submissions/{id}", f.api(f.status))
	mux.HandleFunc("GET /submissions/{id}/logs", f.api(func(w http.ResponseWriter, _ *http.Request) {
		attributes(w, "sub-1", map[string]any{"developerLogUrl": f.URL + "/log"})
	}))
	mux.HandleFunc("GET /log", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"statusSummary": "Archive contains critical validation errors", "issues": f.Issues})
	})
	mux.HandleFunc("PUT /store/bucket-1/some/object.zip", f.store)
	srv := httptest.NewServer(mux)
	tb.Cleanup(srv.Close)
	f.URL, f.Upload = srv.URL, srv.URL+"/store"
	return f
}

var credentials = aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "secret", SessionToken: "session"}

// KeyFile writes the key as App Store Connect gives it.
func (f *Service) KeyFile() string {
	der, err := x509.MarshalPKCS8PrivateKey(f.key)
	if err != nil {
		f.tb.Fatal(err)
	}
	file := filepath.Join(f.tb.TempDir(), "AuthKey_K1.p8")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		f.tb.Fatal(err)
	}
	return file
}

// api lets in who has a token of the key, as the service's documentation asks.
func (f *Service) api(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.Lock()
		defer f.Unlock()
		token, err := jwt.Parse(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), func(*jwt.Token) (any, error) { return &f.key.PublicKey, nil },
			jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience("appstoreconnect-v1"), jwt.WithIssuer(Issuer), jwt.WithExpirationRequired())
		if err != nil || token.Header["kid"] != KeyID {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"errors":[{"detail":"Provide a properly configured and signed bearer token"}]}`)
			return
		}
		next(w, r)
	}
}

func attributes(w io.Writer, id string, a map[string]any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"id": id, "attributes": a}})
}

func (f *Service) submit(w http.ResponseWriter, r *http.Request) {
	var ask struct{ SubmissionName, SHA256 string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		f.tb.Error(err)
	}
	f.Submits++
	f.Declared = ask.SHA256
	attributes(w, "sub-1", map[string]any{
		"awsAccessKeyId": credentials.AccessKeyID, "awsSecretAccessKey": credentials.SecretAccessKey, "awsSessionToken": credentials.SessionToken,
		"bucket": "bucket-1", "object": "some/object.zip",
	})
}

func (f *Service) status(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != "sub-1" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer := f.Answers[min(f.asks, len(f.Answers)-1)]
	f.asks++
	if f.Asked != nil {
		f.Asked(f.asks)
	}
	var code int
	if _, err := fmt.Sscan(answer, &code); err == nil {
		w.WriteHeader(code)
		return
	}
	attributes(w, "sub-1", map[string]any{"status": answer})
}

// store signs the request once more and compares.
func (f *Service) store(w http.ResponseWriter, r *http.Request) {
	if f.Harm != nil {
		f.Harm(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.tb.Error(err)
	}
	sum := sha256.Sum256(body)
	f.Lock()
	f.Uploaded = hex.EncodeToString(sum[:])
	f.Unlock()
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		f.tb.Error(err)
	}
	again, err := http.NewRequest(http.MethodPut, "http://"+r.Host+r.URL.EscapedPath(), bytes.NewReader(body))
	if err != nil {
		f.tb.Error(err)
	}
	again.Header.Set("X-Amz-Content-Sha256", f.Uploaded)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(r.Context(), credentials, again, f.Uploaded, "s3", "us-west-2", at); err != nil {
		f.tb.Error(err)
	}
	if r.Header.Get("Authorization") != again.Header.Get("Authorization") || r.Header.Get("X-Amz-Security-Token") != "session" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "SignatureDoesNotMatch")
	}
}

package notary

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

// fake answers as Apple's service and its store do, and checks who asks.
type fake struct {
	t        *testing.T
	url      string
	key      *ecdsa.PrivateKey
	mu       sync.Mutex
	answers  []string // one a question for the status; the last one stays; a number is a status of HTTP
	issues   []map[string]any
	submits  int
	asks     int
	sum      string
	uploaded string                      // digest of what arrived
	asked    func(n int)                 // called at each question, when not nil
	harm     func(w http.ResponseWriter) // in place of storing
}

func newFake(t *testing.T, answers ...string) *fake {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, key: key, answers: answers}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /submissions", f.api(f.submit))
	mux.HandleFunc("GET /submissions/{id}", f.api(f.status))
	mux.HandleFunc("GET /submissions/{id}/logs", f.api(func(w http.ResponseWriter, _ *http.Request) {
		attributes(w, "sub-1", map[string]any{"developerLogUrl": f.url + "/log"})
	}))
	mux.HandleFunc("GET /log", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"statusSummary": "Archive contains critical validation errors", "issues": f.issues})
	})
	mux.HandleFunc("PUT /store/bucket-1/some/object.zip", f.store)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

var credentials = aws.Credentials{AccessKeyID: "AKIA", SecretAccessKey: "secret", SessionToken: "session"}

// service is what asks the fake.
func (f *fake) service() *Service {
	return &Service{URL: f.url, Upload: f.url + "/store", Key: f.load(), Every: time.Millisecond, Bound: 5 * time.Second, Say: f.t.Logf}
}

func (f *fake) keyFile() string {
	der, err := x509.MarshalPKCS8PrivateKey(f.key)
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(f.t.TempDir(), "AuthKey_K1.p8")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

func (f *fake) load() Key {
	key, err := LoadKey(f.keyFile(), "K1", "issuer-1")
	if err != nil {
		f.t.Fatal(err)
	}
	return key
}

// api lets in who has a token of the key, as the service's documentation asks.
func (f *fake) api(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		token, err := jwt.Parse(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), func(*jwt.Token) (any, error) { return &f.key.PublicKey, nil },
			jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience("appstoreconnect-v1"), jwt.WithIssuer("issuer-1"), jwt.WithExpirationRequired())
		if err != nil || token.Header["kid"] != "K1" {
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

func (f *fake) submit(w http.ResponseWriter, r *http.Request) {
	var ask struct{ SubmissionName, SHA256 string }
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		f.t.Error(err)
	}
	f.submits++
	f.sum = ask.SHA256
	attributes(w, "sub-1", map[string]any{
		"awsAccessKeyId": credentials.AccessKeyID, "awsSecretAccessKey": credentials.SecretAccessKey, "awsSessionToken": credentials.SessionToken,
		"bucket": "bucket-1", "object": "some/object.zip",
	})
}

func (f *fake) status(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("id") != "sub-1" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer := f.answers[min(f.asks, len(f.answers)-1)]
	f.asks++
	if f.asked != nil {
		f.asked(f.asks)
	}
	var code int
	if _, err := fmt.Sscan(answer, &code); err == nil {
		w.WriteHeader(code)
		return
	}
	attributes(w, "sub-1", map[string]any{"status": answer})
}

// store signs the request once more and compares.
func (f *fake) store(w http.ResponseWriter, r *http.Request) {
	if f.harm != nil {
		f.harm(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Error(err)
	}
	sum := sha256.Sum256(body)
	f.mu.Lock()
	f.uploaded = hex.EncodeToString(sum[:])
	f.mu.Unlock()
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		f.t.Error(err)
	}
	again, err := http.NewRequest(http.MethodPut, "http://"+r.Host+r.URL.EscapedPath(), bytes.NewReader(body))
	if err != nil {
		f.t.Error(err)
	}
	again.Header.Set("X-Amz-Content-Sha256", f.uploaded)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(r.Context(), credentials, again, f.uploaded, "s3", "us-west-2", at); err != nil {
		f.t.Error(err)
	}
	if r.Header.Get("Authorization") != again.Header.Get("Authorization") || r.Header.Get("X-Amz-Security-Token") != "session" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "SignatureDoesNotMatch")
	}
}

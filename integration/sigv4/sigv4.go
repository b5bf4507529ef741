// Package sigv4 verifies the signatures of requests as the servers of AWS do (Signature Version 4).
// Test servers use it.
package sigv4

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

var authorization = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=[0-9a-f]+$`)
})

// Verify returns an error unless the owner of the keys has signed the request, within an hour of
// now. It checks the body, too, if the signature covers the body's hash. It reads the body, and
// puts the body back into r.
func Verify(r *http.Request, keys aws.Credentials) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	m := authorization().FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil || m[1] != keys.AccessKeyID {
		return errors.New("no signature by the owner")
	}
	region, service, signed := m[2], m[3], m[4]
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > time.Hour {
		return fmt.Errorf("signed at another time: %w", err)
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "https://"+r.Host+r.RequestURI, nil)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(signed, ";") {
		if again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name); name == "content-length" {
			again.ContentLength = r.ContentLength
		}
	}
	sum := sha256.Sum256(body)
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if hash == "" || len(hash) == hex.EncodedLen(len(sum)) {
		hash = hex.EncodeToString(sum[:])
	}
	err = v4.NewSigner().SignHTTP(r.Context(), keys, again, hash, service, region, at, func(o *v4.SignerOptions) { o.DisableURIPathEscaping = service == "s3" })
	if err == nil && (again.Header.Get("Authorization") != r.Header.Get("Authorization") || r.Header.Get("X-Amz-Security-Token") != keys.SessionToken) {
		err = fmt.Errorf("the signature is of another request or key: %s", r.Header.Get("Authorization"))
	}
	return err
}

package secret

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Hosts of AWS do not get the credential: it signs the requests (Signature Version 4). The program
// signs with the placeholder. The proxy removes that signature and signs the request with the
// owner's key, for the service and region that the program has named.

// amzContent is the header with the hash of the body. Its values for a body in chunks begin with
// amzStreaming. amzAlgorithm is the first word of the header Authorization.
const (
	amzContent   = "X-Amz-Content-Sha256"
	amzAlgorithm = "AWS4-HMAC-SHA256"
	amzStreaming = "STREAMING-"
)

// maxHashed bounds a body whose hash the program has not sent in a header. Such a body is held in
// memory (see Slots). Clients leave the hash out only for services with small requests.
const maxHashed = 16 << 20

// signature has the parts of a request's signature that the program chooses.
type signature struct {
	service, region string
	payload         string // the hash of the body, or a word that S3 accepts instead
}

// awsHeaders are further headers that hosts of AWS get.
var awsHeaders = []string{"x-amz-*", "amz-sdk-*"}

// ownHeaders are headers that the signer sets.
var ownHeaders = []string{"X-Amz-Date", "X-Amz-Security-Token"}

// CheckScope returns an error if text is not valid for Secret.Scopes.
func CheckScope(text string) error {
	service, region, ok := strings.Cut(text, "/")
	if _, err := path.Match(text, ""); err != nil || !ok || service == "" || region == "" || strings.Contains(region, "/") {
		return fmt.Errorf("%s: write SERVICE/REGION, as in s3/eu-central-1 or s3/*", names.Quote(text))
	}
	return nil
}

// keyServices are services whose answers can be keys that the program could use without rootsfs.
// The host of another service may answer for them, too, so readSignature looks at the service that a
// request is signed for.
var keyServices = []string{"iam", "sts"}

// errSignedURL refuses a signature in the query: the program has made it with the placeholder.
var errSignedURL = errors.New("this URL is signed in advance, by a placeholder, and is worth nothing: send the request with a header Authorization")

// readSignature reads the program's own signature. It refuses a request that cannot be signed again,
// and a request for a service and region that the secret does not sign for.
func (s *Secret) readSignature(r *http.Request) (*signature, *refusal) {
	bad := func(format string, args ...any) (*signature, *refusal) {
		return nil, &refusal{http.StatusBadRequest, fmt.Errorf(format, args...)}
	}
	algorithm, fields, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case r.Header.Get("Authorization") == "" && strings.Contains(r.URL.RawQuery, "X-Amz-Signature"):
		return nil, &refusal{http.StatusBadRequest, errSignedURL}
	case len(r.Header["Authorization"]) != 1 || algorithm != amzAlgorithm:
		return bad("a request to AWS needs a header Authorization of the kind %s, by the key in ~/.aws/credentials", amzAlgorithm)
	case len(r.Header[amzContent]) > 1:
		return bad("the header %s is there twice", amzContent)
	}
	scope := scopeOf(fields)
	if len(scope) != 4 || !regionText().MatchString(scope[1]) || !regionText().MatchString(scope[2]) {
		return bad("the header Authorization names no service and region")
	}
	out := &signature{service: scope[2], region: scope[1], payload: r.Header.Get(amzContent)}
	switch isKnown := payloadText().MatchString(out.payload); {
	case !isKnown && !strings.HasPrefix(out.payload, amzStreaming):
		return bad("the header %s has no hash", amzContent)
	case !isKnown:
		return bad("a body in signed chunks (%s) cannot be signed again: let the client sign the whole body, or none of it, such as payload_signing_enabled = true in the table s3 of ~/.aws/config, or chunkedEncodingEnabled(false) of the SDK for Java",
			names.Escape(out.payload))
	}
	is := func(pattern string) bool { ok, _ := path.Match(pattern, out.service+"/"+out.region); return ok }
	if s.Scopes != nil && !slices.ContainsFunc(s.Scopes, is) {
		return nil, &refusal{http.StatusForbidden, fmt.Errorf("the secret %s signs for %s, and this is for %s", s.Name, strings.Join(s.Scopes, ", "), names.Quote(out.service+"/"+out.region))}
	}
	if s.Scopes == nil && slices.Contains(keyServices, out.service) && !strings.HasPrefix(s.URL.Host, out.service+".") {
		return nil, &refusal{http.StatusForbidden, fmt.Errorf(`answers of the service %[1]s can be keys, which the program would have: scopes = ["%[1]s/*"] in the [[secret]] block permits it`, out.service)}
	}
	return out, nil
}

// copySource is the header that names the object of S3 that a request copies.
const copySource = "X-Amz-Copy-Source"

// checkObject refuses a request that could reach another object of S3 than the rules were checked
// for. It refuses these:
//   - a path with empty elements, . or ..: S3 takes them for names, but the rules were checked for the
//     path without them
//   - a rename, if the secret has rules
//   - a copy of an object that the program may not read, or that the header does not name plainly
func (x *exchange) checkObject(r *http.Request) *refusal {
	s, sources := x.p.secret, r.Header[copySource]
	if x.path.isChanged {
		return &refusal{http.StatusBadRequest, errors.New("for S3 an empty name, . and .. in a path are names as any other, and the rules remove them: leave them out")}
	}
	if s.Allow != nil && len(r.Header["X-Amz-Rename-Source"]) > 0 {
		return &refusal{http.StatusForbidden, errors.New("rules do not see what an object of S3 was called before: copy it and delete it instead")}
	}
	if len(sources) == 0 {
		return nil
	}
	written, _, _ := strings.Cut(sources[0], "?")
	for _, reading := range []string{written, strings.ReplaceAll(written, "+", "%20")} {
		path, err := parsePath("/" + strings.TrimPrefix(reading, "/"))
		switch {
		case len(sources) > 1 || err != nil || path.isChanged:
			return &refusal{http.StatusBadRequest, fmt.Errorf("the header %s does not name one object plainly", copySource)}
		case !path.below(s.URL.Prefix) || s.Allow != nil && !allowed(s.Allow, http.MethodGet, path):
			x.rec.Permit = ruleFor(http.MethodGet, path)
			return &refusal{http.StatusForbidden, fmt.Errorf("the source of the copy: %w", s.noRule(http.MethodGet, path, x.rec.Permit))}
		}
	}
	return nil
}

// payloadText matches the values of amzContent that can be signed again: a hash, or a word
// that S3 accepts instead. It also matches the empty text, which a missing header gives.
var payloadText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(|[0-9a-f]{64}|UNSIGNED-PAYLOAD|STREAMING-UNSIGNED-PAYLOAD-TRAILER)$`)
})

// scopeOf returns the scope that the fields of a header Authorization name: date, region, service and
// a last word, which is "aws4_request" in a valid header. It returns nil if they name none.
func scopeOf(fields string) []string {
	for field := range strings.SplitSeq(fields, ",") {
		value, ok := strings.CutPrefix(strings.TrimSpace(field), "Credential=")
		words := strings.Split(value, "/")
		if !ok || len(words) < 5 || slices.Contains(words, "") {
			continue
		}
		return words[len(words)-4:]
	}
	return nil
}

// hashBody sets the hash of the body, if the program has not sent it.
func (x *exchange) hashBody(r *http.Request) *refusal {
	if x.signature == nil || x.signature.payload != "" {
		return nil
	}
	if err := x.reserveMemory(r.Context()); err != nil {
		return &refusal{http.StatusServiceUnavailable, err}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(x.p.mostHashed)+1))
	switch {
	case err != nil:
		return &refusal{http.StatusBadRequest, errors.New("the body did not come")}
	case len(body) > x.p.mostHashed:
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("a body of more than %d bytes needs its hash in the header %s", x.p.mostHashed, amzContent)}
	}
	sum := sha256.Sum256(body)
	x.signature.payload = hex.EncodeToString(sum[:])
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// signer signs requests before it sends them.
type signer struct {
	x    *exchange
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper for the request that exchange.rewrite has made.
func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := s.x.sign(r.Context(), r); err != nil {
		return nil, err
	}
	return s.next.RoundTrip(r)
}

// sign signs a request.
func (x *exchange) sign(ctx context.Context, r *http.Request) error {
	c := x.p.credential
	keys := aws.Credentials{AccessKeyID: c.found.keys.id, SecretAccessKey: c.value, SessionToken: c.found.keys.token}
	for _, name := range ownHeaders {
		r.Header.Del(name)
	}
	isS3 := strings.HasPrefix(x.signature.service, "s3")
	if isS3 {
		r.URL.RawPath = s3Encoding.Replace(x.path.sent)
	}
	return v4.NewSigner().SignHTTP(ctx, keys, r, x.signature.payload, x.signature.service, x.signature.region, time.Now(), func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = isS3
	})
}

// s3Encoding encodes the characters that url.PathEscape leaves as they are, but that S3 encodes before
// it compares the signature.
var s3Encoding = strings.NewReplacer("$", "%24", "&", "%26", "+", "%2B", "=", "%3D", ":", "%3A", "@", "%40")

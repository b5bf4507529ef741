package fleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Key signs the documents of a party. It is never also the key of a connection: a server makes
// its clients sign any nonce that it chooses, and the nonce could be a document.
type Key struct{ private ed25519.PrivateKey }

// The prefixes keep these keys from being taken for keys of the message server.
const (
	publicPrefix = "rfp:"
	seedPrefix   = "rootsfs-signing-key:"
)

// newKey makes a key.
func newKey() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	return &Key{private}, err
}

// loadKey reads a key.
func loadKey(file string) (*Key, error) {
	data, err := readOwn(file)
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(string(data)), seedPrefix)
	seed, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s is no signing key", names.Quote(file))
	}
	return &Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// save writes the key.
func (k *Key) save(file string) error {
	return writeSynced(file, []byte(seedPrefix+base64.RawURLEncoding.EncodeToString(k.private.Seed())+"\n"))
}

// Public returns the public half of the key, as text.
func (k *Key) Public() string {
	return publicPrefix + base64.RawURLEncoding.EncodeToString(k.private.Public().(ed25519.PublicKey))
}

// anyKey accepts every key: the caller checks the signer itself, or the signer does not matter.
func anyKey(string) bool { return true }

// sealed is a signed document: Sig is over the fleet, the kind and Body.
type sealed struct {
	Body []byte `json:"body"`
	By   string `json:"by"`
	Sig  []byte `json:"sig"`
}

// signedText returns the text that is signed. It names the fleet and the kind, so that the
// signature is valid for no other fleet and no other kind.
func signedText(fleet, kind string, body []byte) []byte {
	return append([]byte("rootsfs-fleet/1 "+fleet+" "+kind+"\x00"), body...)
}

// seal signs a document.
func seal(k *Key, fleet, kind string, v any) ([]byte, error) {
	body, err := stdjson.Marshal(v)
	if err != nil {
		return nil, err
	}
	return stdjson.Marshal(sealed{body, k.Public(), ed25519.Sign(k.private, signedText(fleet, kind, body))})
}

// errSigner says that a document's signing key is malformed, or may not sign the document.
var errSigner = errors.New("it is signed by a key that may not sign it")

// openSigned verifies a signed document and decodes its body into v. It returns the public key that
// signed it, which trusts must accept.
func openSigned(data []byte, fleet, kind string, trusts func(by string) bool, v any) (by string, err error) {
	var s sealed
	if err := decode(data, &s); err != nil {
		return "", err
	}
	rest, ok := strings.CutPrefix(s.By, publicPrefix)
	public, err := base64.RawURLEncoding.DecodeString(rest)
	if !ok || err != nil || len(public) != ed25519.PublicKeySize || !trusts(s.By) {
		return "", errSigner
	}
	if !ed25519.Verify(public, signedText(fleet, kind, s.Body), s.Sig) {
		return "", errors.New("its signature is wrong")
	}
	return s.By, decode(s.Body, v)
}

// maxSealed bounds a signed document.
const maxSealed = 1 << 20

// decode reads one JSON value, strictly: it refuses fields that v does not have and duplicate
// fields, so that all parties read a signed document in the same way.
func decode(data []byte, v any) error {
	if len(data) > maxSealed {
		return fmt.Errorf("it has more than %d bytes", maxSealed)
	}
	return json.Unmarshal(data, v, json.RejectUnknownMembers(true))
}

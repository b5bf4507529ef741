package sandbox

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// Trust is a certificate authority that the command's programs trust besides the machine's, at
// levels Namespaces and Bubblewrap. NewTrust makes one.
type Trust struct {
	PEM []byte
	// Hash is the name by which OpenSSL finds the authority in a directory, without the
	// number at the end.
	Hash string

	java func() []byte // waits for the file for Java, and returns it; nil: it cannot be made
}

// NewTrust returns a Trust. It begins to make the file for Java in the background, because that takes
// milliseconds. Start waits until the file is made.
func NewTrust(pem []byte, hash string) *Trust {
	java := sync.OnceValue(func() []byte { return javaTrust(slices.Concat(layout.MachineBundle(), pem)) })
	go java()
	return &Trust{PEM: pem, Hash: hash, java: java}
}

// These variables name files of authorities. A file that a variable of bundleVariables names
// replaces the machine's authorities. A file that a variable of extraVariables names is added to
// the program's own authorities.
var (
	bundleVariables = []string{
		"SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",
	}
	extraVariables = []string{"NODE_EXTRA_CA_CERTS", "DENO_CERT"}
)

// Java reads no PEM file. It takes options from a variable, among them the path of its file of
// authorities, which has no password.
const (
	javaVariable = "JAVA_TOOL_OPTIONS"
	javaStore    = "-Djavax.net.ssl.trustStore="
	javaOptions  = javaStore + layout.TrustJava + " -Djavax.net.ssl.trustStoreType=PKCS12"
)

// maxTrustFile bounds the bytes that are read of a file of authorities that a variable in
// Options.Env names.
const maxTrustFile = 4 << 20

// plan sets the variables that name files of authorities, and returns the files. If a variable
// already names a file with certificates, it gets another file, with the same certificates and the
// authority. A variable that names anything else is left unchanged.
func (t *Trust) plan(o *Options) *layout.Trust {
	if t == nil {
		return nil
	}
	out := &layout.Trust{PEM: t.PEM, Hash: t.Hash}
	o.Env = slices.Clone(o.Env)
	for i, e := range o.Env {
		name, path, _ := strings.Cut(e, "=")
		if !slices.Contains(bundleVariables, name) && !slices.Contains(extraVariables, name) {
			continue
		}
		if certificates := o.certificates(path); certificates != nil {
			at := layout.TrustDir + "/" + name + ".pem"
			out.Files = append(out.Files, layout.File{At: at, Data: append(certificates, t.PEM...)})
			o.Env[i] = name + "=" + at
		}
	}
	for _, name := range bundleVariables {
		o.Env = addMissing(o.Env, []string{name + "=" + layout.TrustBundle})
	}
	for _, name := range extraVariables {
		o.Env = addMissing(o.Env, []string{name + "=" + layout.TrustAuthority})
	}
	if store := t.java(); store != nil {
		out.Files = append(out.Files, layout.File{At: layout.TrustJava, Data: store})
		o.addJavaOptions()
	}
	return out
}

// addJavaOptions names the authorities to Java, unless the owner's options name others.
func (o *Options) addJavaOptions() {
	o.Env = addMissing(o.Env, []string{javaVariable + "="})
	for i, e := range o.Env {
		if own, ok := strings.CutPrefix(e, javaVariable+"="); ok && !strings.Contains(own, javaStore) {
			o.Env[i] = javaVariable + "=" + strings.TrimSpace(own+" "+javaOptions)
		}
	}
}

// javaTrust returns authorities as a PKCS #12 file in which Java finds them, nil if it cannot be
// made.
func javaTrust(text []byte) []byte {
	var list []pkcs12.TrustStoreEntry
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" { // only its bytes are used
			list = append(list, pkcs12.TrustStoreEntry{Cert: &x509.Certificate{Raw: block.Bytes}, FriendlyName: strconv.Itoa(len(list))})
		}
	}
	store, err := pkcs12.Passwordless.EncodeTrustStoreEntries(list, "")
	if err != nil {
		return nil
	}
	return store
}

// certificates returns the certificates in a file that the command sees at a path, nil if there
// are none. It leaves out everything else that the file holds.
func (o *Options) certificates(path string) (list []byte) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil
	}
	from := path
	if !layout.Shows(path) { // a file in a root is read as the command reads it
		if rel, ok := strings.CutPrefix(path, o.FlatAt); o.Map == Flat && ok {
			path = rel
		}
		from = o.Tree + path
	}
	f, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTrustFile))
	if err != nil {
		return nil
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			list = append(list, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	return list
}

package layout

import (
	"os"
	"testing"
)

// containsCredential finds the credential in the settings of each of these programs, and finds none
// in settings without a credential.
func TestContainsCredential(t *testing.T) {
	for text, want := range map[string]bool{
		"//r.corp/:_authToken=abc":                                      true,
		"//r.corp/:_auth = bWU6cHc=":                                    true,
		"//r.corp/:_password=\"cHc=\"":                                  true,
		"_authToken[]=abc":                                              true,
		"//r.corp/:_authToken=${A}abc${B}":                              true,
		"[global]\nindex-url = https://me:pw@r.corp/simple":             true,
		"[url \"https://ghp_token@github.com/\"]\n\tinsteadOf = git":    true,
		"[http]\n\textraHeader = Authorization: Basic abc":              true,
		"http_password = x":                                             true,
		"header = X-Auth-Token: x":                                      true,
		"<server><id>corp</id><password>{COQLCE6DU6GtcS5P=}</password>": true,
		"<password>\n  abc\n</password>":                                true,
		"<!-- <password>old</password> -->":                             true,
		"export AWS_SECRET_ACCESS_KEY=wJalr":                            true,
		"export HTTPS_PROXY=http://me:pw@proxy.corp:3128":               true,
		"export DB_PWD='x'":                                             true,
		"# curl -H 'Authorization: Bearer abcdefgh'":                    true,
		"{\"auths\": {\"r.corp\": {\"auth\": \"bWU6cHc=\"}}}":           true,
		"-----BEGIN OPENSSH PRIVATE KEY-----":                           true,
		"x ghp_0123456789abcdefABCDEF0123456789abcd x":                  true,
		"api_key=x":                              true,
		"apikey: x":                              true,
		"access_key=x":                           true,
		"<accessKey>x</accessKey>":               true,
		"MY_PAT=x":                               true,
		"Passphrase: x":                          true,
		"cookie: a=b":                            true,
		"x BEARER abc.defgh":                     true,
		"x github_pat_0123456789abcdefghij":      true,
		"x glpat-0123456789abcdefghij":           true,
		"x npm_0123456789abcdefABCDEF0123456789": true,
		"x pypi-0123456789abcdefghij":            true,
		"x xoxb-0123456789abcdefghij":            true,
		"x sk-0123456789abcdefghij":              true,
		"x AKIA0123456789ABCDEF":                 true,
		"ftp://me@host":                          true,
		"registry=https://r.corp/\nalways-auth=true\ncafile=/etc/ssl/ca.crt": false,
		"//r.corp/:_authToken=${NPM_TOKEN}":                                  false,
		"//r.corp/:_authToken=":                                              false,
		"[global]\nindex-url = https://r.corp/simple":                        false,
		"[user]\n\temail = me@corp\n\tsigningkey = ABC\n[credential]\n\thelper = cache\n[url \"ssh://git@github.com/\"]": false,
		"passive_ftp = on\n#auth_no_challenge = off":                                                        false,
		"export npm_config_userconfig=/etc/npmrc":                                                           false,
		"export TOKEN=$OTHER PASSWORD=\"$(pass show x)\"":                                                   false,
		"umask 022; PATH=/usr/bin; if [ \"$PS1\" ]; then fi":                                                false,
		"      <password>proxypass</password>\n<passphrase>optional; leave empty if not used.</passphrase>": false,
	} {
		if got := containsCredential(text); got != want {
			t.Errorf("%q contains a credential: %v, want %v", text, got, want)
		}
	}
}

// containsCredential reports whether buffers find a credential in the text.
func containsCredential(text string) bool {
	var b buffers
	b.text.WriteString(text)
	return b.containsCredential()
}

// The settings that this machine's distribution installs do not seem to contain a credential.
func TestDistributionSettingsHaveNoCredential(t *testing.T) {
	for _, path := range []string{"/etc/profile", "/etc/bash.bashrc", "/etc/wgetrc", "/etc/maven/settings.xml", "/etc/maven/toolchains.xml", "/etc/skel/.bashrc", "/etc/profile.d/bash_completion.sh"} {
		if text, err := os.ReadFile(path); err == nil && containsCredential(string(text)) {
			t.Errorf("%s seems to contain a credential", path)
		}
	}
}

package guard

import "testing"

// What npm takes for credentials is found however it is written, and what it takes
// from its environment is none.
func TestTokensOfNpm(t *testing.T) {
	for text, want := range map[string]bool{
		"registry=https://r/\n":                                     false,
		"//r/:_authToken=abc":                                       true,
		"//r/:_authToken=${TOKEN}":                                  false,
		"//r/:_authToken=\"${TOKEN}\"":                              false,
		"//r/:_authToken=${A}abc${B}":                               true,
		"//r/:_authToken=":                                          false,
		"  //r/:_AUTHTOKEN = abc":                                   true,
		"\"//r/:_authToken\"=abc":                                   true,
		"_authToken[]=abc":                                          true,
		"a=1\r//r/:_authToken=abc":                                  true,
		"//r/:username=me\n//r/:_password=cHc=":                     true,
		"_auth=bWU6cHc=":                                            true,
		"key=\"-----BEGIN PRIVATE KEY-----\\nMIIE\"":                true,
		"# nothing\nsave-exact=true\n//r/:keyfile=/home/me/key.pem": false,
	} {
		if got := hasTokens(text); got != want {
			t.Errorf("%q holds tokens: %v, want %v", text, got, want)
		}
	}
}
